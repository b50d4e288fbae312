"""Tests of the memory that fusions take: results stay in place, and plans that need too much are not carried out."""

from __future__ import annotations

import pytest

from runtime.compile import schedule_module
from runtime.fusion import context
from runtime.schedule.exact_memory import device_bytes
from spmd.hlo import Opcode, Stage
from spmd.text.parser import parse_module
from tests.runtime.fusion.test_priority_fusion import fused, fusions, inside, random_program


def test_a_result_is_still_written_over_the_parameter_that_it_replaces() -> None:
    """A sum cannot be made over an operand of its own kernel: the donated vector is updated by a kernel of its own."""
    text = """HloModule t, input_output_alias={ {}: (0, {}, may-alias) }
sum {
  u = f32[] parameter(0)
  v = f32[] parameter(1)
  ROOT w = f32[] add(u, v)
}
ENTRY e {
  p = f32[4096] parameter(0)
  g = f32[64,4096] parameter(1)
  z = f32[] constant(0)
  s = f32[4096] reduce(g, z), dimensions={0}, to_apply=sum
  ROOT r = f32[4096] subtract(p, s)
}
"""
    module = parse_module(text)
    module.stage = Stage.OPTIMIZED
    schedule_module(module)
    before = device_bytes(module)
    after = fused(module)
    assert device_bytes(after) <= before
    assert after.entry.root.opcode is Opcode.SUBTRACT


def test_a_plan_that_takes_too_much_memory_is_not_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = random_program(0)
    schedule_module(module)
    before, after = device_bytes(module), device_bytes(fused(module))
    part = after / before - 1  # none may take more than the one that was made
    monkeypatch.setattr(context, "SLACK", part - 0.01)
    assert device_bytes(fused(module)) == after  # so small a program may take some more
    monkeypatch.setattr(context, "SLACK_BYTES", -before)
    assert device_bytes(fused(module)) < after or not fusions(fused(module))
    monkeypatch.setattr(context, "SLACK", part + 0.01)
    assert device_bytes(fused(module)) == after


LATE_READ = """
precedes {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

body {
  s = (s32[], f32[512], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  large = f32[512] get-tuple-element(s), index=1
  few = f32[4] get-tuple-element(s), index=2
  others = f32[4] get-tuple-element(s), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  part = f32[4] slice(large), slice={[0:4]}
  bent = f32[4] exponential(part)
  ordered = f32[512] sort(large), dimensions={0}, to_apply=precedes
  least = f32[4] slice(ordered), slice={[0:4]}
  sum = f32[4] add(bent, least)
  root = f32[4] sqrt(others)
  less = f32[4] negate(root)
  ROOT t = (s32[], f32[512], f32[4], f32[4]) tuple(next, ordered, sum, less)
}

condition {
  u = (s32[], f32[512], f32[4], f32[4]) parameter(0)
  j = s32[] get-tuple-element(u), index=0
  end = s32[] constant(1000)
  ROOT more = pred[] compare(j, end), direction=LT
}
"""


def test_no_kernel_reads_loop_state_after_it_was_overwritten() -> None:
    """Such a kernel would need a copy of the state; the other kernels must not be given up for it."""
    entry = """
  x = f32[512] parameter(0)
  y = f32[4] parameter(1)
  z = f32[4] parameter(2)
  zero = s32[] constant(0)
  state = (s32[], f32[512], f32[4], f32[4]) tuple(zero, x, y, z)
  ROOT loop = (s32[], f32[512], f32[4], f32[4]) while(state), condition=condition, body=body"""
    module = parse_module(f"HloModule t, is_scheduled=true\n{LATE_READ}\nENTRY e {{{entry}\n}}\n")
    before = device_bytes(module)
    step = fused(module)
    (fusion,) = fusions(step)
    assert {Opcode.SQRT, Opcode.ADD} < {*inside(fusion)}, "it is not given up"
    assert Opcode.EXPONENTIAL not in inside(fusion), "it would read what is sorted in place"
    assert device_bytes(step) <= before
