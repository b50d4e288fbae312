"""Reductions by any scalar program, of one array and of several, against the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from runtime.kernels.program_reduce import ProgramReduceKernel
from runtime.kernels.reference import ReferenceKernel
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import walk
from spmd.evaluator.evaluator import evaluate
from tests.runtime.programs import compiled, module_of, random_inputs

ARGMAX = """HloModule argmax
f {{
  a = {kind}[] parameter(0)
  i = s32[] parameter(1)
  b = {kind}[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  odd = pred[] compare(a, a), direction=NE
  first = pred[] or(gt, odd)
  eq = pred[] compare(a, b), direction=EQ
  lt = pred[] compare(i, j), direction=LT
  tie = pred[] and(eq, lt)
  left = pred[] or(first, tie)
  value = {kind}[] select(first, a, b)
  index = s32[] select(left, i, j)
  ROOT r = ({kind}[], s32[]) tuple(value, index)
}}
ENTRY main {{
  x = {kind}[{x}] parameter(0)
  n = s32[{x}] iota(), iota_dimension={axis}
  low = {kind}[] constant({low})
  zero = s32[] constant(0)
  ROOT r = ({kind}[{y}], s32[{y}]) reduce(x, n, low, zero), dimensions={{{axes}}}, to_apply=f
}}
"""

ONE = """HloModule one
f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  {body}
}}
ENTRY main {{
  x = {kind}[3,4,5] parameter(0)
  i = {kind}[] constant(2)
  ROOT r = {kind}[4] reduce(x, i), dimensions={{0,2}}, to_apply=f
}}
"""


def check(text: str, kernel: type) -> None:
    executable = compiled(text)
    thunks = walk(executable.program.thunks)
    assert {t.kernel.__class__ for t in thunks if isinstance(t, KernelThunk)} == {kernel}
    inputs = random_inputs(executable.module)
    for got, want in zip(executable.run(*inputs), evaluate(module_of(text), *inputs), strict=True):
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("kind", "low"), [("f32", "-inf"), ("bf16", "-inf"), ("s8", "-128"), ("u32", "0")]
)
@pytest.mark.parametrize(
    ("x", "y", "axis", "axes"),
    [
        ("4,7", "4", 1, "1"),
        ("4,7", "7", 0, "0"),
        ("3,4,5", "", 1, "0,1,2"),
        ("3,4,5", "4", 0, "0,2"),
        ("3,0", "3", 1, "1"),
        ("0,3", "0", 1, "1"),
        ("2,3,2,3,2", "2,2,2", 1, "1,3"),
    ],
)
def test_argmax(kind: str, low: str, x: str, y: str, axis: int, axes: str) -> None:
    text = ARGMAX.format(kind=kind, low=low, x=x, y=y, axis=axis, axes=axes)
    check(text, ProgramReduceKernel)


@pytest.mark.parametrize(
    ("kind", "body", "step"),
    [
        (
            "s32",
            "c = s32[] constant(3)\n  m = s32[] maximum(a, c)\n  ROOT r = s32[] add(m, b)",
            lambda a, b: np.maximum(a, 3) + b,
        ),
        (
            "f32",
            "n = f32[] abs(b)\n  ROOT r = f32[] maximum(a, n)",
            lambda a, b: np.maximum(a, np.abs(b)),
        ),
        (
            "u8",
            "c = u8[] constant(200)\n  d = u8[] xor(a, c)\n  ROOT r = u8[] add(d, b)",
            lambda a, b: (a ^ np.uint8(200)) + b,
        ),
    ],
)
def test_other_reducers_take_one_element_after_the_other(
    kind: str, body: str, step: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> None:
    executable = compiled(ONE.format(kind=kind, body=body))
    (x,) = random_inputs(executable.module)
    (got,) = executable.run(x)
    want = np.full(4, 2, x.dtype)
    for i in range(3):
        for k in range(5):
            want = step(want, x[i, :, k])
    np.testing.assert_array_equal(got, want)


def test_reducers_with_functions_that_native_code_has_not() -> None:
    body = "e = f32[] exponential(b)\n  ROOT r = f32[] maximum(a, e)"
    text = ONE.format(kind="f32", body=body)
    thunks = walk(compiled(text).program.thunks)
    assert {t.kernel.__class__ for t in thunks if isinstance(t, KernelThunk)} == {ReferenceKernel}
