"""Real programs on ranks of several nodes, with collectives in flight beside other work: JAX's results."""

from __future__ import annotations

import pytest

from collectives.communicator.interface import Communicator
from launch.data.inputs import read_inputs
from launch.entry import Compiled, Entry
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.ranks.shared_compile import compile_on_first
from spmd.machine.named import machine_named
from spmd.text.sources.load import load
from tests.mpi.test_cases import CASES, WORLD, assert_expected, cases_for, two_steps

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("spread_comm", ["alone"], indirect=True)
@pytest.mark.parametrize("name", cases_for(WORLD[1] if WORLD else 0))
def test_case(name: str, spread_comm: Communicator) -> None:
    """The links are so slow that it pays to hide everything that can be hidden.

    The checkers of buffers and schedules look at the result.
    """
    module = load(CASES / name / "module.hlo")
    entry = Entry.of_module(module)
    machine = machine_named("tcp-cluster{links=0.02,node=1}")
    options = CompileOptions(machine=machine, check=True)
    executable = compile_on_first(
        spread_comm, lambda: Compiled(compile_module(module, None, options), "")
    )
    assert executable.overlap is not None
    inputs = read_inputs(CASES / name / "inputs.npz", entry.inputs)
    whole = executable.run(*inputs)
    if whole:
        assert_expected(whole, name, entry)
    # A value that a step reads too early is the one of the step before, which differs.
    once, again = (two_steps(executable, entry, inputs) for _ in range(2))
    assert [x.tobytes() for x in once] == [x.tobytes() for x in again]
    spread_comm.barrier()
