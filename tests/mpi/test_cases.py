"""Tests of real programs on MPI ranks: they give JAX's results, and the same bits as in-process devices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import pytest

from collectives.communicator.interface import Communicator
from launch.checks.expect import check_output, read_expected
from launch.data.inputs import Array, read_inputs
from launch.entry import Entry
from launch.execution import execute_steps
from launch.pipeline import compile_module
from launch.ranks.rank_environment import world_of_environment
from launch.ranks.rank_executable import RankExecutable
from runtime.executable import Executable
from spmd.text.sources.load import load
from tests.paths import CASES

WORLD = world_of_environment()

pytestmark = pytest.mark.mpi(min_size=2)


def cases_for(ranks: int) -> list[str]:
    """Return the cases for ``ranks`` devices; all cases where no job says how many there are."""
    descriptions = [json.loads(path.read_text()) for path in sorted(CASES.glob("*/case.json"))]
    return [case["name"] for case in descriptions if ranks in (0, case["num_partitions"])]


@dataclass(frozen=True)
class Case:
    """A case as all devices of a job run it."""

    executable: Executable
    entry: Entry
    inputs: list[Array]

    def two_steps(self, executable: Executable | RankExecutable) -> list[bytes]:
        """Return the second step's outputs, on the ranks that get outputs."""
        return [array.tobytes() for array in two_steps(executable, self.entry, self.inputs)]

    @cached_property
    def bits(self) -> list[bytes]:
        """The second step's outputs of devices in one process."""
        return self.two_steps(self.executable)


@cache
def case_of(name: str, size: int) -> Case:
    module = load(CASES / name / "module.hlo")
    entry = Entry.of_module(module)
    return Case(
        compile_module(module, size), entry, read_inputs(CASES / name / "inputs.npz", entry.inputs)
    )


@pytest.mark.parametrize("name", cases_for(WORLD[1] if WORLD else 0))
def test_case(name: str, comm: Communicator) -> None:
    case = case_of(name, comm.size)
    on_rank = RankExecutable.of(case.executable, comm)
    whole = on_rank.run(*case.inputs)
    assert bool(whole) == (comm.rank == 0)
    if whole:
        assert_expected(whole, name, case.entry)
    again = case.two_steps(on_rank)
    assert not again or again == case.bits
    comm.barrier()


@pytest.mark.parametrize("name", cases_for(WORLD[1] if WORLD else 0))
def test_case_between_nodes(name: str, spread_comm: Communicator) -> None:
    case = case_of(name, spread_comm.size)
    got = case.two_steps(RankExecutable.of(case.executable, spread_comm))
    assert bool(got) == (spread_comm.rank == 0)
    assert not got or got == case.bits
    spread_comm.barrier()


def assert_expected(outputs: Sequence[Array], name: str, entry: Entry) -> None:
    """Assert that the outputs are JAX's."""
    expected = read_expected(CASES / name / "expected.npz", entry.outputs)
    checks = [check_output(got, want) for got, want in zip(outputs, expected, strict=True)]
    assert [check.name for check in checks if not check.ok] == []


def two_steps(
    executable: Executable | RankExecutable, entry: Entry, inputs: list[Array]
) -> list[Array]:
    done = execute_steps(executable, executable.put(inputs), 2, entry.feedback)
    return executable.get(done.outputs)
