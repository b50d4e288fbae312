"""reduce-window and select-and-scatter by kernels: windows, types and edges, against the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.program.records.reduce import ReduceWindowKernel, SelectAndScatterKernel
from runtime.program.records.reference import ReferenceKernel
from spmd.ops.window import WindowDimension
from tests.runtime.programs import compiled
from tests.runtime.programs.agreement import assert_agrees, kernels_of


def check(text: str, kernel: type, *, exact: bool, rtol: float = 1e-5) -> None:
    assert set(map(type, kernels_of(assert_agrees(text, rtol=0 if exact else rtol)))) == {kernel}


def reduce_window(kind: str, root: str, init: str, x: str, y: str, window: str) -> str:
    return f"""HloModule reduce_window
    f {{
      a = {kind}[] parameter(0)
      b = {kind}[] parameter(1)
      ROOT r = {kind}[] {root}(a, b)
    }}
    ENTRY main {{
      x = {kind}[{x}] parameter(0)
      i = {kind}[] constant({init})
      ROOT w = {kind}[{y}] reduce-window(x, i), window={{{window}}}, to_apply=f
    }}
    """


@pytest.mark.parametrize(
    ("kind", "root", "init"),
    [
        ("f32", "add", "0"),
        ("f32", "maximum", "-inf"),
        ("f64", "multiply", "3"),
        ("bf16", "add", "1"),
        ("s32", "minimum", "7"),
        ("s8", "add", "100"),
        ("pred", "or", "false"),
        ("c64", "add", "(0,0)"),
    ],
)
@pytest.mark.parametrize(
    ("x", "y", "window"),
    [
        ("2,6,8", "2,3,4", "size=1x2x2 stride=1x2x2"),
        ("2,6,8", "2,6,8", "size=1x3x3 pad=0_0x1_1x1_1"),
        ("2,6,8", "2,3,5", "size=1x3x2 stride=1x2x3 pad=0_0x1_0x3_3"),
        ("2,6,8", "2,2,8", "size=1x3x2 rhs_dilate=1x2x3 pad=0_0x0_0x1_2"),
        ("2,6,8", "2,4,6", "size=1x2x2 pad=0_0x-1_0x-1_0"),
        ("2,7,7,5", "2,4,4,5", "size=1x4x4x1"),
        ("2,7,9,5", "2,3,5,5", "size=1x3x3x1 stride=1x2x1x1 rhs_dilate=1x1x2x1"),
        ("9,3", "9,3", "size=9x1 pad=8_0x0_0"),
        ("3,9", "3,9", "size=1x9 pad=0_0x0_8"),
        ("3,9", "3,9", "size=1x5 pad=0_0x4_0"),
        ("3", "6", "size=2 pad=3_1"),
        ("0,3", "4,3", "size=2x1 pad=2_3x0_0"),
    ],
)
def test_reduce_window(kind: str, root: str, init: str, x: str, y: str, window: str) -> None:
    """Running totals forwards and backwards among them."""
    text = reduce_window(kind, root, init, x, y, window)
    check(text, ReduceWindowKernel, exact=kind in ("s32", "s8", "pred") or root == "maximum")


@pytest.mark.parametrize(
    ("x", "y", "window"),
    [
        ("3", "4", "size=2 lhs_dilate=2"),
        ("4,3,5", "4,7,8", "size=1x2x2 pad=0_0x2_1x0_0 lhs_dilate=1x2x2"),
        ("2,3,5", "2,3,4", "size=1x2x3 stride=1x2x3 pad=0_0x1_1x-1_2 lhs_dilate=1x2x3"),
        ("2,5", "2,2", "size=1x3 stride=1x2 pad=0_0x1_1 rhs_dilate=1x2 lhs_dilate=1x1"),
    ],
)
def test_reduce_window_over_a_dilated_base(x: str, y: str, window: str) -> None:
    check(reduce_window("f32", "add", "0", x, y, window), ReduceWindowKernel, exact=False)


@pytest.mark.parametrize("seed", range(24))
def test_random_windows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    base = tuple(int(n) for n in rng.integers(1, 9, rank))
    dims = []
    for _ in base:
        choices = [int(n) for n in rng.integers(1, 4, 4)]
        size, stride, window_dilation, base_dilation = choices
        low, high = (int(n) for n in rng.integers(-1, 4, 2))
        dims.append(WindowDimension(size, stride, low, high, base_dilation, window_dilation))
        if rng.random() < 0.4:
            dims[-1] = WindowDimension()
    y = [dim.output_size(n) for dim, n in zip(dims, base, strict=True)]
    text = reduce_window(
        "f32", "maximum", "-inf", ",".join(map(str, base)), ",".join(map(str, y)), _printed(dims)
    )
    check(text, ReduceWindowKernel, exact=True)


def _printed(dims: Sequence[WindowDimension]) -> str:
    def joined(*names: str) -> str:
        return "x".join("_".join(str(getattr(dim, name)) for name in names) for dim in dims)

    return (
        f"size={joined('size')} stride={joined('stride')} "
        f"pad={joined('padding_low', 'padding_high')} lhs_dilate={joined('base_dilation')} "
        f"rhs_dilate={joined('window_dilation')}"
    )


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "s8", "s32", "c64"])
@pytest.mark.parametrize(
    ("x", "axis"),
    [("1", 0), ("17", 0), ("1100", 0), ("3,515", 1), ("65,2,3", 0), ("3,1030", 0), ("5,4,33", 1)],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_running_totals(kind: str, x: str, axis: int, backwards: bool) -> None:
    dims = [int(n) for n in x.split(",")]
    around = [(0, 0)] * len(dims)
    around[axis] = (0, dims[axis] - 1) if backwards else (dims[axis] - 1, 0)
    sizes = [n if d == axis else 1 for d, n in enumerate(dims)]
    window = f"size={'x'.join(map(str, sizes))} pad={'x'.join(f'{a}_{b}' for a, b in around)}"
    init = "(1,2)" if kind == "c64" else "3"
    text = reduce_window(kind, "add", init, x, x, window)
    check(
        text,
        ReduceWindowKernel,
        exact=kind[0] == "s",
        rtol={"bf16": 1e-2, "f32": 1e-4, "c64": 1e-4}.get(kind, 1e-5),
    )


def select_and_scatter(kind: str, select: str, scatter: str, x: str, s: str, window: str) -> str:
    return f"""HloModule select_and_scatter
    f {{
      a = {kind}[] parameter(0)
      b = {kind}[] parameter(1)
      ROOT r = pred[] compare({select}
    }}
    g {{
      a = {kind}[] parameter(0)
      b = {kind}[] parameter(1)
      ROOT r = {kind}[] {scatter}(a, b)
    }}
    ENTRY main {{
      x = {kind}[{x}] parameter(0)
      s = {kind}[{s}] parameter(1)
      i = {kind}[] constant(2)
      ROOT w = {kind}[{x}] select-and-scatter(x, s, i), window={{{window}}}, select=f, scatter=g
    }}
    """


@pytest.mark.parametrize(
    ("kind", "select", "scatter"),
    [
        ("f32", "a, b), direction=GE", "add"),
        ("f64", "a, b), direction=LT", "multiply"),
        ("f32", "b, a), direction=GT", "add"),
        ("bf16", "a, b), direction=GE", "add"),
        ("s32", "b, a), direction=LE", "maximum"),
        ("u8", "a, b), direction=GT", "add"),
    ],
)
@pytest.mark.parametrize(
    ("x", "s", "window"),
    [
        ("2,6,8,3", "2,3,4,3", "size=1x2x2x1 stride=1x2x2x1"),
        ("6,8", "6,8", "size=3x3 pad=1_1x1_1"),
        ("6,8", "3,5", "size=3x2 stride=2x3 pad=1_0x3_3"),
        ("5", "7", "size=1 pad=1_1"),
        ("4,1030", "2,1030", "size=2x1 stride=2x1"),
        ("3,5,7", "3,3,4", "size=1x3x2 stride=1x2x2 pad=0_0x1_1x0_1"),
        ("2,3,2,4,2", "2,3,1,2,2", "size=1x1x2x2x1 stride=1x1x2x2x1"),
    ],
)
def test_select_and_scatter(
    kind: str, select: str, scatter: str, x: str, s: str, window: str
) -> None:
    """Windows that overlap, that reach into padding, and that lie in it; many lanes, and lanes far from each other."""
    text = select_and_scatter(kind, select, scatter, x, s, window)
    check(text, SelectAndScatterKernel, exact=kind in ("s32", "u8"))


def test_select_keeps_the_first_of_equals() -> None:
    text = select_and_scatter("f32", "a, b), direction=GE", "add", "4", "2", "size=2 stride=2")
    (got,) = compiled(text).run(np.ones(4, np.float32), np.array([5, 7], np.float32))
    assert got.tolist() == [7, 2, 9, 2]


def test_one_source_element_for_all_windows() -> None:
    text = """HloModule repeated_source
    f {
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT r = pred[] compare(a, b), direction=GE
    }
    g {
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT r = f32[] add(a, b)
    }
    ENTRY main {
      x = f32[2,6,5] parameter(0)
      one = f32[] parameter(1)
      s = f32[2,3,5] broadcast(one), dimensions={}
      i = f32[] constant(0)
      ROOT w = f32[2,6,5] select-and-scatter(x, s, i), window={size=1x3x1 stride=1x2x1 pad=0_0x1_0x0_0}, select=f, scatter=g
    }
    """
    assert SelectAndScatterKernel in set(map(type, kernels_of(assert_agrees(text, rtol=0))))


def test_other_selections_go_through_the_evaluator() -> None:
    text = select_and_scatter("f32", "a, b), direction=EQ", "add", "4", "2", "size=2 stride=2")
    check(text, ReferenceKernel, exact=False)


ODD = """HloModule odd_windows
f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  p = {kind}[] multiply(a, b)
  s = {kind}[] add(a, b)
  ROOT r = {kind}[] add(p, s)
}}
ENTRY main {{
  x = {kind}[{x}] parameter(0)
  i = {kind}[] constant({init})
  ROOT w = {kind}[{y}] reduce-window(x, i), window={{{window}}}, to_apply=f
}}
"""


@pytest.mark.parametrize(("kind", "init"), [("s32", "0"), ("f32", "0"), ("c64", "(0,0)")])
@pytest.mark.parametrize(
    ("x", "y", "window"),
    [
        ("6,8", "3,4", "size=2x2 stride=2x2"),
        ("6,8", "6,8", "size=3x3 pad=1_1x1_1"),
        ("9,3", "9,3", "size=9x1 pad=8_0x0_0"),
        ("9,3", "9,3", "size=9x1 pad=0_8x0_0"),
        ("3,9", "3,9", "size=1x9 pad=0_0x0_8"),
        ("9", "9", "size=9 pad=8_0"),
        ("2,9,1100", "2,9,1100", "size=1x9x1 pad=0_0x8_0x0_0"),
        ("3,5", "3,9", "size=1x2 lhs_dilate=1x2 pad=0_0x0_1"),
    ],
)
def test_odd_reducers(kind: str, init: str, x: str, y: str, window: str) -> None:
    """(1 + a) (1 + b) - 1, which is associative."""
    text = ODD.format(kind=kind, init=init, x=x, y=y, window=window)
    check(text, ReduceWindowKernel, exact=kind == "s32", rtol=1e-3)


def test_products_of_complex_numbers() -> None:
    text = reduce_window("c64", "multiply", "(1,0)", "3,9", "3,9", "size=1x9 pad=0_0x8_0")
    check(text, ReduceWindowKernel, exact=False)
