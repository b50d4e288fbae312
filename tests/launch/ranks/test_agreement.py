"""Tests of what ranks say when they do not agree; the jobs themselves are in tests/mpi."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from loopback_ranks import run_ranks

from launch.mpirun import MpiJob
from launch.ranks.agreement import AgreedError, agree, describe_difference
from spmd.errors import RunError, SpmdError

Setup = Callable[[], tuple[str, dict[str, str]]]


def agree_on_threads(setups: list[Setup]) -> list[Any]:
    """Each rank's result or AgreedError."""

    def program(comm: Any) -> Any:
        try:
            return agree(comm, setups[comm.rank])
        except AgreedError as error:
            return error

    return run_ranks(len(setups), program)


def test_ranks_that_agree_go_on_with_their_own_result() -> None:
    setups: list[Setup] = [lambda r=rank: (f"result {r}", {"module": "a"}) for rank in range(3)]
    assert agree_on_threads(setups) == ["result 0", "result 1", "result 2"]


def test_a_rank_with_another_module_is_named_on_every_rank() -> None:
    setups: list[Setup] = [
        lambda r=rank: ("", {"module": "b" if r == 2 else "a"}) for rank in range(4)
    ]
    for outcome in agree_on_threads(setups):
        assert str(outcome) == "ranks do not have the same module: rank 2: b; the other ranks: a"
        assert outcome.agreed_code == 2


def failing(error: Exception) -> Setup:
    def setup() -> tuple[str, dict[str, str]]:
        raise error

    return setup


def test_an_error_on_one_rank_ends_all_with_its_rank_and_code() -> None:
    good: Setup = lambda: ("", {"module": "a"})  # noqa: E731
    for outcome in agree_on_threads([good, failing(RunError("no memory")), good]):
        assert str(outcome) == "[rank 1/3] no memory"
        assert outcome.agreed_code == 3


def test_the_same_error_on_every_rank_is_said_once() -> None:
    outcomes = agree_on_threads([failing(SpmdError("x.hlo:1:1: no such opcode")) for _ in range(3)])
    assert [str(outcome) for outcome in outcomes] == ["x.hlo:1:1: no such opcode"] * 3


def test_a_defect_on_one_rank_does_not_leave_the_others_waiting() -> None:
    good: Setup = lambda: ("", {"module": "a"})  # noqa: E731
    for outcome in agree_on_threads([good, failing(KeyError("x"))]):
        assert str(outcome).startswith("[rank 1/2] internal error: KeyError: 'x'")
        assert outcome.agreed_code == 3


def test_differences_name_every_key() -> None:
    prints = [
        {"module": "a", "options": "o"},
        {"module": "a", "options": "o"},
        {"module": "b", "options": "p"},
    ]
    assert describe_difference(prints).splitlines() == [
        "ranks do not have the same module: rank 2: b; the other ranks: a",
        "ranks do not have the same options: rank 2: p; the other ranks: o",
    ]
    assert describe_difference(json.loads(json.dumps(prints[:2]))) == ""


def test_the_job_environment_keeps_what_the_caller_has_set() -> None:
    environment = MpiJob(2, ("true",)).environment({"OMPI_MCA_btl": "tcp,self", "HOME": "/h"})
    assert environment["OMPI_MCA_btl"] == "tcp,self"
    assert environment["HOME"] == "/h"
    assert environment["OMPI_ALLOW_RUN_AS_ROOT"] == "1"


@pytest.mark.parametrize("hostfile", [None, "hosts"])
def test_shared_memory_alone_only_on_one_node(hostfile: str | None) -> None:
    from pathlib import Path

    job = MpiJob(2, ("true",), Path(hostfile) if hostfile else None)
    assert ("OMPI_MCA_btl" in job.environment({})) is (hostfile is None)
