"""Random programs on ranks: many run in one MPI job, and one that ends the job costs itself alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.zoo.generated.run import Found, Runner, ahead
from benchmarks.zoo.generated.seeds import devices_of


def runner(work: Path) -> Runner:
    return Runner(work, "python", ranks=True, confirm=lambda _: "agrees")


def test_the_program_that_ends_the_job_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = runner(tmp_path)
    seeds = [seed for seed in range(99) if devices_of(seed) == 4][:4]
    deadly = seeds[1]
    jobs: list[list[int]] = []

    def job(self: Runner, devices: int, left: list[int]) -> str:
        jobs.append(list(left))
        for seed in left:
            if seed == deadly:
                return "the job ended with 9: out of luck"
            self.ranks_file(seed).write_text("same bits")
        return "the job ended with 0: nothing said"

    monkeypatch.setattr(Runner, "_job", job)
    for seed in seeds:
        tested.folder(seed).mkdir(parents=True)
    found = list(tested.on_ranks(4, seeds))
    assert [one.seed for one in found] == seeds
    assert [one.passed for one in found] == [True, False, True, True]
    assert found[1] == Found(deadly, "agrees", "", "the job ended with 9: out of luck")
    assert jobs == [seeds, seeds[2:]]
    assert [path.name for path in tmp_path.iterdir()] == [f"random_{deadly}"]


def test_programs_are_built_ahead_in_order() -> None:
    assert [seed for seed, _ in ahead(lambda seed: (seed, "written"), range(40))] == [*range(40)]
