"""Real programs on ranks of several nodes, with collectives in flight beside other work: JAX's results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectives.communicator.interface import Communicator
from launch.compiled import Compiled
from launch.entry import Entry
from launch.execution import execute_steps
from launch.expect import check_output, read_expected
from launch.inputs import read_inputs
from launch.npz import Array
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.rank_environment import world_of_environment
from launch.rank_executable import RankExecutable
from launch.shared_compile import compile_on_first
from runtime.shared_memory_engine import native_step_engine
from spmd.machine.named import machine_named
from spmd.text.load import load

#: By the number of devices.
FOLDERS = {
    folder.parent: json.loads(folder.read_text())["num_partitions"]
    for folder in sorted((Path(__file__).parent.parent / "cases").glob("*/case.json"))
}
RANKS = (world_of_environment() or (0, 0))[1]

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture(scope="module")
def apart() -> Iterator[object]:
    """Each rank on a node of its own."""
    from mpi4py import MPI

    from collectives.communicator.mpi import MpiCommunicator

    name = f"node {MPI.COMM_WORLD.rank}"
    communicator = MpiCommunicator(timeout_seconds=60, engine=native_step_engine(), node_id=name)
    yield communicator
    communicator.close()


@pytest.mark.parametrize(
    "folder", [f for f, n in FOLDERS.items() if RANKS in (0, n)], ids=lambda f: f.name
)
def test_case(folder: Path, apart: Communicator) -> None:
    """On links so slow that it pays to hide what there is."""
    module = load(folder / "module.hlo")
    entry = Entry.of_module(module)
    options = CompileOptions(machine=machine_named("tcp-cluster{links=0.02,node=1}"))
    executable = compile_on_first(
        apart, lambda: Compiled(compile_module(module, None, options), "")
    )
    assert executable.overlap is not None
    inputs = read_inputs(folder / "inputs.npz", entry.inputs)
    whole = executable.run(*inputs)
    if whole:
        expected = read_expected(folder / "expected.npz", entry.outputs)
        checks = [check_output(got, want) for got, want in zip(whole, expected, strict=True)]
        assert [check.name for check in checks if not check.ok] == []
    # What a step reads too early is there from the steps before, and is not the same again.
    once, again = (two_steps(executable, entry, inputs) for _ in range(2))
    assert [x.tobytes() for x in once] == [x.tobytes() for x in again]
    apart.barrier()


def two_steps(executable: RankExecutable, entry: Entry, inputs: list[Array]) -> list[Array]:
    done = execute_steps(executable, executable.put(inputs), 2, entry.feedback)
    return executable.get(done.outputs)
