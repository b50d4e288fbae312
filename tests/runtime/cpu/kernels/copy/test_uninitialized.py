"""A loop's state that begins as memory nobody has written to costs nothing and holds what the trips have written."""

from __future__ import annotations

import numpy as np

from launch.pipeline import compile_module
from runtime.program.records.copy import UninitializedKernel
from runtime.program.thunks import CopyThunk, KernelThunk, traverse
from spmd.evaluator.evaluator import evaluate
from tests.runtime.programs import module_of, random_inputs

#: Squares of x + i stacked by trip, twice: alike, and from the last row to the first.
STACKED = """HloModule stacked
body {
  s = (s32[], f32[64], f32[6,64], f32[6,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  up = f32[6,64] get-tuple-element(s), index=2
  down = f32[6,64] get-tuple-element(s), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  five = s32[] constant(5)
  next = s32[] add(i, one)
  back = s32[] subtract(five, i)
  f = f32[] convert(i)
  fs = f32[64] broadcast(f), dimensions={}
  y = f32[64] add(x, fs)
  z = f32[64] multiply(y, y)
  row = f32[1,64] reshape(z)
  up.next = f32[6,64] dynamic-update-slice(up, row, i, zero)
  down.next = f32[6,64] dynamic-update-slice(down, row, back, zero)
  ROOT t = (s32[], f32[64], f32[6,64], f32[6,64]) tuple(next, y, up.next, down.next)
}
more {
  s = (s32[], f32[64], f32[6,64], f32[6,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  six = s32[] constant(6)
  ROOT lt = pred[] compare(i, six), direction=LT
}
ENTRY main {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  rows = f32[6,64] broadcast(nothing), dimensions={}
  s = (s32[], f32[64], f32[6,64], f32[6,64]) tuple(zero, x, rows, rows)
  w = (s32[], f32[64], f32[6,64], f32[6,64]) while(s), condition=more, body=body
  up = f32[6,64] get-tuple-element(w), index=2
  down = f32[6,64] get-tuple-element(w), index=3
  ROOT r = (f32[6,64], f32[6,64]) tuple(up, down)
}
"""


def test_what_a_loop_writes_all_over_is_not_filled_before() -> None:
    executable = compile_module(module_of(STACKED))
    thunks = list(traverse(executable.program.thunks))
    kernels = [t.kernel for t in thunks if isinstance(t, KernelThunk)]
    assert sum(isinstance(kernel, UninitializedKernel) for kernel in kernels) == 2
    filled = [t for t in thunks if isinstance(t, CopyThunk) and t.target.view.num_elements > 64]
    assert not filled
    (x,) = random_inputs(executable.module, 0)
    for _ in range(2):
        for ours, wanted in zip(executable.run(x), evaluate(module_of(STACKED), x), strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=1e-6)
