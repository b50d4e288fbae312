"""Ranks whose steps one of them runs: loopback's bits, everyone's own arrays, and programs that are not hosted."""

from __future__ import annotations

import re

import numpy as np
import pytest
from shared_memory_ranks import SharedMemoryRank, run_shared_memory_ranks

from runtime.executable import Executable
from runtime.executor import LoadedDevice
from runtime.hosting import hosted_steps
from spmd.errors import CollectiveTimeoutError, RunError
from tests.runtime.programs import CARRIED_BY_PYTHON, compiled, exchange_loop
from tests.runtime.test_crew import PROGRAM as WITH_PYTHON
from tests.runtime.test_crew import tiles

#: Results that a group holds together, and state that is given back.
PROGRAM = exchange_loop(
    40,
    alias=", input_output_alias={ {0}: (0, {}) }",
    entry="""y = f32[40] get-tuple-element(end), index=1
  half = f32[] constant(0.5)
  wide = f32[2000] pad(y, half), padding=0_1960
  all = f32[8000] all-gather(wide), channel_id=3, dimensions={0}, replica_groups={{0,1,2,3}}, use_global_device_ids=true
  id = u32[] partition-id()
  number = f32[] convert(id)
  numbers = f32[8000] broadcast(number), dimensions={}
  sum = f32[8000] add(all, numbers)
  ROOT both = (f32[40], f32[8000]) tuple(y, sum)""",
)


def three_steps(executable: Executable, comm: SharedMemoryRank, x: np.ndarray) -> list[np.ndarray]:
    """The last outputs of steps, each on the first output of the one before."""
    device = executable.load(comm)
    run = hosted_steps(device)
    assert run is not None
    state = device.put(0, lambda memory: np.copyto(memory, x))
    for _ in range(3):
        device.begin([state])
        run()
        device.end()
        state, other = device.outputs
    return [np.asarray(state), np.asarray(other)]


def test_a_host_gives_loopbacks_bits() -> None:
    executable = compiled(PROGRAM)
    given = tiles(executable)
    wanted = given
    for _ in range(3):
        outputs = executable.run_devices(wanted)
        wanted = [[own[0]] for own in outputs]

    found = run_shared_memory_ranks(
        4,
        lambda comm: three_steps(executable, comm, given[comm.rank][0]),
        has_host=True,
    )

    for own, expected in zip(found, outputs, strict=True):
        for got, want in zip(own, expected, strict=True):
            assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("text", [WITH_PYTHON, CARRIED_BY_PYTHON])
def test_a_program_that_needs_python_is_not_hosted(text: str) -> None:
    executable = compiled(text)

    def program(comm: SharedMemoryRank) -> bool:
        return hosted_steps(executable.load(comm)) is None

    assert run_shared_memory_ranks(4, program, has_host=True) == [True] * 4


def test_one_rank_that_needs_python_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(PROGRAM)
    is_native = property(lambda device: device.communicator.rank != 2)
    monkeypatch.setattr(LoadedDevice, "is_native", is_native)

    def program(comm: SharedMemoryRank) -> bool:
        return hosted_steps(executable.load(comm)) is None

    assert run_shared_memory_ranks(4, program, has_host=True) == [True] * 4


def test_a_rank_that_does_not_come_is_named() -> None:
    executable = compiled(PROGRAM)

    def program(comm: SharedMemoryRank) -> str:
        run = hosted_steps(executable.load(comm))
        assert run is not None
        comm.timeout_seconds = 0.3
        message = ""
        if comm.rank != 2:
            with pytest.raises(CollectiveTimeoutError) as caught:
                run()
            message = str(caught.value)
        comm.barrier()
        return message

    late = "nothing came to the gate from [2]"
    assert run_shared_memory_ranks(4, program, has_host=True) == [late, late, "", late]


#: What rank 2 has for rank 3 are rows that it has not.
OUT_OF_BOUNDS = """HloModule program, num_partitions=4
ENTRY main {
  x = f32[8,64] parameter(0)
  y = f32[8,64] parameter(1)
  id = u32[] partition-id()
  two = u32[] constant(2)
  from_two = pred[] compare(id, two), direction=EQ
  from_twos = pred[4] broadcast(from_two), dimensions={}
  to = s32[4] constant({0, 0, 0, 1})
  one = s32[4] constant({1, 1, 1, 1})
  to_three = pred[4] compare(to, one), direction=EQ
  is_far = pred[4] and(from_twos, to_three)
  far = s32[4] constant({7, 7, 7, 7})
  near = s32[4] constant({0, 0, 0, 0})
  offsets = s32[4] select(is_far, far, near)
  size = s32[] constant(2)
  sizes = s32[4] broadcast(size), dimensions={}
  zero = s32[] constant(0)
  zeros = s32[4] broadcast(zero), dimensions={}
  ROOT z = f32[8,64] ragged-all-to-all(x, y, offsets, sizes, zeros, sizes), channel_id=1, replica_groups={{0,1,2,3}}
}
"""


def test_an_error_on_a_device_says_whose_it_is() -> None:
    executable = compiled(OUT_OF_BOUNDS)

    def program(comm: SharedMemoryRank) -> str:
        run = hosted_steps(executable.load(comm))
        assert run is not None
        comm.barrier()
        comm.timeout_seconds = 2.0  # nobody lets the guests go: the host's error ends the job
        with pytest.raises(RunError) as caught:
            run()
        comm.barrier()
        return str(caught.value)

    host, *guests = run_shared_memory_ranks(4, program, has_host=True)
    assert re.match(r"\[rank 3/4\] z: .* point outside of an array", host)
    assert guests == ["nothing came to the gate from [0]"] * 3
