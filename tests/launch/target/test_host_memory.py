"""Offloaded values: on machines whose devices have memory of their own they lie in the host's."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.machine_option import machine_for
from runtime.buffers.live_buffers import LiveBuffers
from runtime.device_program import MemoryLimitError, require_memory
from spmd.machine.named import machine_named
from spmd.shape import HOST_MEMORY
from tests.runtime.gpu.doubles.engines import Doubles

SIZE = 64 * 64 * 4
OFFLOADED = """HloModule h
ENTRY e {
  a = f32[64,64] parameter(0)
  x = f32[64,64] sine(a)
  h = f32[64,64] custom-call(x), custom_call_target="MoveToHost"
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[64,64] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[64,64] custom-call(h), custom_call_target="MoveToDevice"
  ROOT r = f32[64,64] add(z, d)
}
"""


def compiled(text: str, machine: str) -> spmd.Executable:
    options = CompileOptions(machine=machine_named(machine))
    return compile_module(spmd.parse(text), 1, options)


def test_they_take_none_of_the_devices_memory() -> None:
    executable = compiled(OFFLOADED, "dgx-h100")
    figures = executable.stats.figures()
    assert figures[f"space_{HOST_MEMORY}"] == SIZE
    assignment = executable.program.assignment
    everything = sum(allocation.size for allocation in assignment.allocations)
    assert assignment.device_bytes == everything - SIZE == figures["space_0"]
    live = LiveBuffers(assignment)
    assert "h" not in [value.name for held in live.live_slices for value in held.values]
    require_memory(executable.program, assignment.device_bytes)
    with pytest.raises(MemoryLimitError):
        require_memory(executable.program, assignment.device_bytes - 1)
    assert f"memory space {HOST_MEMORY}: {SIZE} bytes" in executable.dump_buffers()


def test_where_all_is_one_memory_they_stay() -> None:
    assert f"space_{HOST_MEMORY}" not in compiled(OFFLOADED, machine_for(None).name).stats.figures()


@pytest.mark.parametrize(
    "use",
    [
        "n = f32[64,64] negate(h) ROOT r = (f32[64,64], f32[64,64]) tuple(n, d)",
        "ROOT r = (f32[64,64], f32[64,64]) tuple(h, d)",
    ],
)
def test_what_is_used_otherwise_stays(use: str) -> None:
    text = OFFLOADED.replace("ROOT r = f32[64,64] add(z, d)", f"q = f32[64,64] add(z, d) {use}")
    assert f"space_{HOST_MEMORY}" not in compiled(text, "dgx-h100").stats.figures()


@pytest.mark.parametrize("ptx", [False, True])
def test_the_numbers_are_the_same(ptx: bool) -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
    (want,) = spmd.evaluate(spmd.parse(OFFLOADED), x)
    assert np.allclose(compiled(OFFLOADED, machine_for(None).name).run(x)[0], want, atol=1e-4)
    doubles = Doubles(ptx=ptx)
    executable = doubles.on(compiled(OFFLOADED, "dgx-h100"))
    for _ in range(3):
        assert np.allclose(executable.run(x)[0], want, atol=1e-4)
    assert doubles.drivers[0].host_bytes == SIZE, "the host's memory beside the arena"
