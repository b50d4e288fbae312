"""Reductions of several arrays by a scalar program, against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.program.records.reduce import ProgramReduceKernel
from tests.runtime.programs.agreement import assert_agrees, kernels_of

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


def check(text: str, kernel: type) -> None:
    assert set(map(type, kernels_of(assert_agrees(text)))) == {kernel}


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
        ("37,65", "37", 1, "1"),
        ("5,1100", "1100", 0, "0"),
        ("1,130", "1", 1, "1"),
        ("32,16", "32", 1, "1"),
        ("71,53", "71", 1, "1"),
        ("3,45,2,33", "3,45", 3, "2,3"),
        ("40,35,3", "35,3", 0, "0"),
        ("35,18,40", "18,40", 0, "0"),
    ],
)
def test_argmax(kind: str, low: str, x: str, y: str, axis: int, axes: str) -> None:
    text = ARGMAX.format(kind=kind, low=low, x=x, y=y, axis=axis, axes=axes)
    check(text, ProgramReduceKernel)


def test_argmax_of_two_arrays() -> None:
    """Both differ from row to row; ties go to the smaller second number."""
    text = ARGMAX.format(kind="f32", low="-inf", x="45,37", y="45", axis=1, axes="1")
    check(
        text.replace("n = s32[45,37] iota(), iota_dimension=1", "n = s32[45,37] parameter(1)"),
        ProgramReduceKernel,
    )


def test_argmax_of_rows_with_nans_and_ties() -> None:
    x = np.random.default_rng(0).integers(0, 5, (67, 50)).astype(np.float32)
    x[::3, 17] = np.nan
    x[1::3, 33] = np.nan
    x[::6, 5] = np.nan
    text = ARGMAX.format(kind="f32", low="-inf", x="67,50", y="67", axis=1, axes="1")
    assert_agrees(text, inputs=[x])


ODD = {
    "max(a, b) + (a and b)": "m = s32[] maximum(a, b)\n  n = s32[] and(a, b)\n  ROOT r = s32[] add(m, n)",
    "2 a + b": "m = s32[] add(a, a)\n  ROOT r = s32[] add(m, b)",
    "max(|a|, 2 b)": "m = s32[] abs(a)\n  n = s32[] add(b, b)\n  ROOT r = s32[] maximum(m, n)",
}


@pytest.mark.parametrize("odd", sorted(ODD))
@pytest.mark.parametrize(
    "shape", ["4,1", "4,2", "4,3", "4,7", "4,64", "4,1000", "100,13", "4,0", "0,4", "40,50"]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_an_odd_reducer_of_one_array_takes_its_elements_in_turn(
    odd: str, shape: str, axis: int
) -> None:
    """None of these is associative: totals are their first arguments."""
    kept = shape.split(",")[1 - axis]
    check(
        f"""HloModule odd
    f {{
      a = s32[] parameter(0)
      b = s32[] parameter(1)
      {ODD[odd]}
    }}
    ENTRY main {{
      x = s32[{shape}] parameter(0)
      i = s32[] constant(5)
      ROOT r = s32[{kept}] reduce(x, i), dimensions={{{axis}}}, to_apply=f
    }}
    """,
        ProgramReduceKernel,
    )


def test_reducers_with_functions() -> None:
    text = ARGMAX.format(kind="f32", x="4,7", y="4", axis=1, axes="1", low="-inf")
    text = text.replace(
        "gt = pred[] compare(a, b)",
        "e = f32[] exponential(a)\n  g = f32[] exponential(b)\n  gt = pred[] compare(e, g)",
    )
    check(text, ProgramReduceKernel)


SUMS = """HloModule sums
f {
  a = c64[] parameter(0)
  i = s32[] parameter(1)
  b = c64[] parameter(2)
  j = s32[] parameter(3)
  c = c64[] add(a, b)
  k = s32[] add(i, j)
  ROOT r = (c64[], s32[]) tuple(c, k)
}
ENTRY main {
  x = c64[4,7] parameter(0)
  n = s32[4,7] iota(), iota_dimension=1
  z = c64[] constant((0, 0))
  zero = s32[] constant(0)
  ROOT r = (c64[4], s32[4]) reduce(x, n, z, zero), dimensions={1}, to_apply=f
}
"""


def test_reducers_of_complex_numbers() -> None:
    executable = assert_agrees(SUMS, rtol=1e-5)
    assert {type(kernel) for kernel in kernels_of(executable)} == {ProgramReduceKernel}
