"""Tests of how ranks leave a job that fails: who says why, and what the others may take for its reason."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any

import pytest

from collectives.communicator.liveness.status_table import RankState
from launch.ranks import shutdown
from launch.ranks.agreement import AgreedError
from spmd.errors import CollectiveTimeoutError, RunError


@dataclass
class World:
    """A double of a communicator for the end of a job; ``missing`` says who does not come to the end."""

    rank: int
    size: int = 3
    missing: str = ""
    life: RankState = RankState.RUNNING
    codes: list[int] = field(default_factory=list)

    def set_rank_state(self, life: RankState) -> None:
        self.life = life

    def has_failed_peer(self) -> bool:
        return False

    def final_barrier(self, seconds: float) -> None:
        if self.missing:
            raise CollectiveTimeoutError(f"within {seconds:g} s: {self.missing}")

    def abort(self, code: int) -> None:
        assert signal.alarm(0) > 0, "nothing limits a call that may not come back"
        self.codes.append(code)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One report for the job, as on one node."""
    taken: list[Any] = []

    def claim(launcher: object) -> bool:
        taken.append(launcher)
        return len(taken) == 1

    monkeypatch.setattr(shutdown, "claim_report", claim)
    return taken


@pytest.mark.usefixtures("claims")
def test_the_first_rank_says_what_all_agreed_on(capfd: pytest.CaptureFixture[str]) -> None:
    worlds = [World(rank) for rank in range(3)]
    for world in worlds:
        assert shutdown.end_job(world, AgreedError("for 2 devices, not for 3", 2)) == 2  # type: ignore[arg-type]
        assert signal.alarm(0) > 0, "nothing limits MPI's end"
    assert capfd.readouterr().err == "spmd: error: for 2 devices, not for 3\n"
    assert [world.codes for world in worlds] == [[], [], []]
    # A peer that sees one of them dead does not take that for the reason.
    assert [world.life for world in worlds] == [
        RankState.FAILED,
        RankState.ENDING,
        RankState.ENDING,
    ]


@pytest.mark.usefixtures("claims")
def test_where_the_first_rank_is_missing_another_says_it_and_who_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    worlds = [World(rank, missing="rank 0 is stopped") for rank in (1, 2)]
    for world in worlds:
        shutdown.end_job(world, AgreedError("no such file", 2))  # type: ignore[arg-type]
    said = "spmd: error: no such file\nwithin 20 s: rank 0 is stopped\n"
    assert capfd.readouterr().err == said
    assert [world.codes for world in worlds] == [[2], [2]]


@pytest.mark.usefixtures("claims")
def test_a_failure_of_its_own_is_said_by_the_first_that_asks(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "_REPORT_SECONDS", 0.0)
    worlds = [World(2), World(1)]
    for world in worlds:
        shutdown.end_job(world, RunError(f"fusion.{world.rank}: no memory"))  # type: ignore[arg-type]
    assert capfd.readouterr().err == "spmd: error: [rank 2/3] fusion.2: no memory\n"
    assert [world.codes for world in worlds] == [[3], [3]]


def test_what_is_said_is_ready_when_it_is_claimed(
    claims: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """A traceback reads sources; on a busy machine the others may have ended the job by then."""
    claimed: list[bool] = []

    class SlowError(Exception):
        def __str__(self) -> str:
            claimed.append(bool(claims))
            return "no such thing"

    shutdown.end_job(World(1), SlowError())  # type: ignore[arg-type]
    assert "no such thing" in capfd.readouterr().err
    assert not any(claimed)
