"""Random programs on ranks: many run in one MPI job, and one that ends the job costs itself alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.zoo.generated import run
from benchmarks.zoo.generated.run import Found, Runner, ahead
from benchmarks.zoo.generated.seeds import devices_of


def test_what_came_of_each_program_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = Runner(tmp_path, "python", ranks=True)
    seeds = [seed for seed in range(99) if devices_of(seed) == 4][:3]
    said = [
        {"ranks": "same bits"},
        {"crashed": "process ended with 9"},
        {"ranks": "other bits in out0"},
    ]

    def job(folders: Sequence[Path], devices: int) -> None:
        assert devices == 4
        for folder, one in zip(folders, said, strict=True):
            (folder / "ranks.json").write_text(json.dumps(one))

    monkeypatch.setattr(run, "run_on_ranks", job)
    for seed in seeds:
        tested.folder(seed).mkdir(parents=True)
    found = list(tested.on_ranks([Found(seed, "agrees") for seed in seeds]))
    assert [one.passed for one in found] == [True, False, False]
    assert found[1].ranks == "crashed: process ended with 9"
    assert tested.tally == {
        "agrees, same bits": 1,
        "agrees, crashed": 1,
        "agrees, other bits in out0": 1,
    }
    assert not tested.all_passed
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"random_{s}" for s in seeds[1:]]


def test_programs_are_built_ahead_in_order() -> None:
    assert [seed for seed, _ in ahead(lambda seed: (seed, "written"), range(40))] == [*range(40)]
