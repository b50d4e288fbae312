"""Random schedules over overlapping groups, on ranks that are threads; `random_runs` tries many more, on processes, too."""

from __future__ import annotations

from tests.collectives.schedule.random_runs import check_run, on_threads, overlaps


def test_schedules_over_overlapping_groups_end() -> None:
    modules = [check_run(seed, 4, on_threads) for seed in range(12)]
    assert sum(map(overlaps, modules)) > 0
