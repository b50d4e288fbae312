"""sort and topk in native code: comparators, types, axes and ties, against the reference evaluator."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime.cpu.kernels.sort.sort import Method, method_of
from runtime.program.records.reference import ReferenceKernel
from runtime.program.records.sort import SortKernel
from spmd.literal import NDArray
from spmd.shape import PrimitiveType
from tests.runtime.programs import module_of, random_inputs
from tests.runtime.programs.agreement import assert_agrees, kernels_of


def check(
    text: str,
    kernel: type,
    change: dict[int, NDArray] | None = None,
    method: Method | None = None,
) -> None:
    inputs = random_inputs(module_of(text))
    for number, array in (change or {}).items():
        inputs[number] = array
    kernels = kernels_of(assert_agrees(text, inputs=inputs))
    assert set(map(type, kernels)) == {kernel}
    if method is not None:
        assert [method_of(k) for k in kernels if isinstance(k, SortKernel)] == [method]


ONE = """HloModule one
f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = pred[] compare(a, b), direction={direction}{order}
}}
ENTRY main {{
  x = {kind}[{dims}] parameter(0)
  ROOT y = {kind}[{dims}] sort(x), dimensions={{{axis}}}, is_stable=true, to_apply=f
}}
"""


def few_values(kind: str, dims: tuple[int, ...]) -> NDArray:
    """Many ties, and for floats zeros of both signs, infinities and nan of both signs."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 6, dims)
    if kind in ("f32", "f64"):
        special = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], kind.replace("f", "float")
        )
        return special[values]
    return values.astype({"s": "int", "u": "uint"}[kind[0]] + kind[1:])


@pytest.mark.parametrize("kind", ["f32", "f64", "s32", "u8", "s64"])
@pytest.mark.parametrize(
    ("dims", "axis"), [((1,), 0), ((33,), 0), ((5, 17), 1), ((17, 5), 0), ((2, 3, 9, 2), 2)]
)
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_sort(kind: str, dims: tuple[int, ...], axis: int, direction: str) -> None:
    order = ", type=TOTALORDER" if kind[0] == "f" else ""
    sizes = ",".join(map(str, dims))
    text = ONE.format(kind=kind, dims=sizes, axis=axis, direction=direction, order=order)
    check(text, SortKernel, {0: few_values(kind, dims)})


@pytest.mark.parametrize(
    "kind", ["pred", "f16", "bf16", "f32", "f64", "s8", "u16", "s32", "s64", "u64"]
)
@pytest.mark.parametrize(("dims", "axis"), [((1000,), 0), ((3, 129), 1), ((200, 3), 0)])
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_radix_sort(kind: str, dims: tuple[int, ...], axis: int, direction: str) -> None:
    order = ", type=TOTALORDER" if "f" in kind else ""
    sizes = ",".join(map(str, dims))
    text = ONE.format(kind=kind, dims=sizes, axis=axis, direction=direction, order=order)
    bits = np.random.default_rng(1).integers(0, 256, (8 * math.prod(dims)), np.uint8)
    values = bits.view(PrimitiveType(kind).numpy)[: math.prod(dims)].reshape(dims)
    if kind == "pred":
        values = (bits[: math.prod(dims)] & 1).astype(bool).reshape(dims)
    check(text, SortKernel, {0: values}, Method.RADIX)


KEYED = """HloModule keyed
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  zero = f32[] constant(0)
  a_is_zero = pred[] compare(a, zero), direction=EQ
  b_is_zero = pred[] compare(b, zero), direction=EQ
  x = f32[] select(a_is_zero, zero, a)
  y = f32[] select(b_is_zero, zero, b)
  ROOT r = pred[] compare({sides}), direction=LT, type=TOTALORDER
}}
ENTRY main {{
  x = f32[{dims}] parameter(0)
  n = s32[{dims}] iota(), iota_dimension={axis}
  ROOT y = (f32[{dims}], s32[{dims}]) sort(x, n), dimensions={{{axis}}}, to_apply=f
}}
"""


@pytest.mark.parametrize("sides", ["x, y", "y, x"])
@pytest.mark.parametrize(("dims", "axis"), [((500,), 0), ((2, 300), 1), ((300, 2), 0)])
def test_keys_that_are_computed(sides: str, dims: tuple[int, ...], axis: int) -> None:
    """Zeros of either sign are equal, and keep their order and sign."""
    text = KEYED.format(sides=sides, dims=",".join(map(str, dims)), axis=axis)
    check(text, SortKernel, {0: few_values("f32", dims)}, Method.RADIX)


def test_rows_of_one_value() -> None:
    text = ONE.format(kind="s32", dims="2,150", axis=1, direction="LT", order="")
    check(text, SortKernel, {0: np.full((2, 150), 7, np.int32)}, Method.RADIX)


@pytest.mark.parametrize("dims", ["0,3", "3,0"])
def test_nothing_to_sort(dims: str) -> None:
    text = ONE.format(kind="f32", dims=dims, axis=0, direction="LT", order="")
    check(text, ReferenceKernel)


TWO = """HloModule two
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  p = bf16[] parameter(4)
  q = bf16[] parameter(5)
  lt = pred[] compare(i, j), direction=LT
  eq = pred[] compare(i, j), direction=EQ
  gt = pred[] compare(a, b), direction=GT, type=TOTALORDER
  tie = pred[] and(eq, gt)
  ROOT r = pred[] or(lt, tie)
}
ENTRY main {
  x = f32[4,21] parameter(0)
  n = s32[4,21] parameter(1)
  t = bf16[21,4] parameter(2)
  v = bf16[4,21] transpose(t), dimensions={1,0}
  ROOT y = (f32[4,21], s32[4,21], bf16[4,21]) sort(x, n, v), dimensions={1}, to_apply=f
}
"""


def test_several_keys_and_values() -> None:
    """The second operand decides, then the first; the third, a view, goes along."""
    check(TWO, SortKernel, {1: few_values("s32", (4, 21))})


TOPK = """HloModule top
ENTRY main {{
  x = {kind}[{dims}] parameter(0)
  ROOT y = ({kind}[{result}], s32[{result}]) topk(x), k={k}, largest={largest}
}}
"""


@pytest.mark.parametrize("kind", ["f32", "f64", "s32"])
@pytest.mark.parametrize(
    ("dims", "result", "k", "method"),
    [
        ((4, 19), "4,3", 3, Method.MERGE),
        ((2, 3, 8), "2,3,8", 8, Method.MERGE),
        ((7,), "1", 1, Method.MERGE),
        ((3, 150), "3,100", 100, Method.RADIX),
        ((3, 150), "3,5", 5, Method.TOP),
        ((2, 2, 1000), "2,2,64", 64, Method.TOP),
        ((8,), "1", 1, Method.TOP),
    ],
)
@pytest.mark.parametrize("largest", ["true", "false"])
def test_topk(
    kind: str, dims: tuple[int, ...], result: str, k: int, method: Method, largest: str
) -> None:
    sizes = ",".join(map(str, dims))
    text = TOPK.format(kind=kind, dims=sizes, result=result, k=k, largest=largest)
    check(text, SortKernel, {0: few_values(kind, dims)}, method)
    many = np.random.default_rng(2).integers(-99, 99, dims).astype(PrimitiveType(kind).numpy)
    check(text, SortKernel, {0: many}, method)
