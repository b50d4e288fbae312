"""Real programs on real ranks: JAX's results, and the same bits as in-process devices give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectives.communicator.interface import Communicator
from launch.entry import Entry
from launch.execution import execute_steps
from launch.expect import check_output, read_expected
from launch.inputs import read_inputs
from launch.npz import Array
from launch.pipeline import compile_module
from launch.rank_environment import world_of_environment
from launch.rank_executable import RankExecutable
from runtime.executable import Executable
from spmd.text.load import load

CASES = Path(__file__).parent.parent / "cases"
WORLD = world_of_environment()

pytestmark = pytest.mark.mpi(min_size=2)


def cases_for(ranks: int) -> list[str]:
    """The cases for as many devices; every one where no job says how many there are."""
    descriptions = [json.loads(path.read_text()) for path in sorted(CASES.glob("*/case.json"))]
    return [case["name"] for case in descriptions if ranks in (0, case["num_partitions"])]


@pytest.mark.parametrize("name", cases_for(WORLD[1] if WORLD else 0))
def test_case(name: str, comm: Communicator) -> None:
    module = load(CASES / name / "module.hlo")
    entry = Entry.of_module(module)
    executable = compile_module(module, comm.size)
    inputs = read_inputs(CASES / name / "inputs.npz", entry.inputs)

    on_rank = RankExecutable.of(executable, comm)

    whole = on_rank.run(*inputs)
    assert bool(whole) == (comm.rank == 0)
    if whole:
        expected = read_expected(CASES / name / "expected.npz", entry.outputs)
        checks = [check_output(got, want) for got, want in zip(whole, expected, strict=True)]
        assert [check.name for check in checks if not check.ok] == []

    again = two_steps(on_rank, entry, inputs)
    if again:
        local = two_steps(executable, entry, inputs)
        for got, want in zip(again, local, strict=True):
            assert got.tobytes() == want.tobytes()
    comm.barrier()


def two_steps(executable: Executable, entry: Entry, inputs: list[Array]) -> list[Array]:
    done = execute_steps(executable, executable.put(inputs), 2, entry.feedback)
    return executable.get(done.outputs)
