"""Loops and branches: what is read back, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.gpu.command import traverse_commands
from runtime.gpu.commands.while_loop import CountedLoopCommand, WhileCommand
from spmd.evaluator.evaluator import evaluate
from tests.runtime.gpu.doubles.engines import Doubles, devices_of
from tests.runtime.programs import assert_same, compiled, module_of

LOOP = """HloModule loop
condition {{
  state = (s32[], {kind}, s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] {limit}
  ROOT more = pred[] compare(i, n), direction=LT
}}
body {{
  state = (s32[], {kind}, s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = {kind} get-tuple-element(state), index=1
  n = s32[] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = {kind} add(x, x)
  ROOT out = (s32[], {kind}, s32[]) tuple(next, y, n)
}}
ENTRY main {{
  x = {kind} parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], {kind}, s32[]) tuple(zero, x, n)
  ROOT end = (s32[], {kind}, s32[]) while(start), condition=condition, body=body
}}
"""
COUNTED = "constant(12)"
READ_BACK = "get-tuple-element(state), index=2"


@pytest.mark.parametrize(
    ("kind", "limit", "step"),
    [
        ("f32[5]", COUNTED, CountedLoopCommand),
        ("f32[5]", READ_BACK, WhileCommand),
        ("f32[]", COUNTED, CountedLoopCommand),
        ("f32[]", READ_BACK, WhileCommand),
    ],
)
def test_loops(kind: str, limit: str, step: type) -> None:
    text = LOOP.format(kind=kind, limit=limit)
    doubles = Doubles(ptx=True)
    executable = doubles.on(compiled(text))
    (device,) = devices_of(executable).devices
    assert any(isinstance(one, step) for one in traverse_commands(device.plan))
    for trips in (3, 0, 12, 5):
        inputs = [np.ones(5 if "5" in kind else (), np.float32), np.array(trips, np.int32)]
        before = len(doubles.drivers[0].launched)
        assert_same(executable.run(*inputs), evaluate(module_of(text), *inputs))
        downloads = doubles.drivers[0].launched[before:].count("download")
        if step is CountedLoopCommand:
            assert downloads == 3  # the outputs
        if step is WhileCommand:
            assert downloads == 3 + trips + 1
