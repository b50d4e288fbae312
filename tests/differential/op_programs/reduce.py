"""Reductions of dimensions and of windows."""

from __future__ import annotations

from spmd.ops.window import WindowDimension
from tests.differential.op_programs.table import Draw, op, text


@op
def reduce_sum(draw: Draw) -> str:
    a, b, c = draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b},{c}] parameter(0)",
        "init = f32[] parameter(1)",
        f"ROOT r = f32[{b}] reduce(x, init), dimensions={{0,2}}, to_apply=add",
    )


@op
def reduce_max(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        "init = f32[] constant(-inf)",
        f"ROOT r = f32[{a}] reduce(x, init), dimensions={{1}}, to_apply=max",
    )


@op
def reduce_any(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = pred[{a},{b}] parameter(0)",
        "init = pred[] constant(false)",
        f"ROOT r = pred[{b}] reduce(x, init), dimensions={{0}}, to_apply=or",
    )


@op
def reduce_unknown(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        "init = f32[] constant(0)",
        f"ROOT r = f32[{a}] reduce(x, init), dimensions={{1}}, to_apply=odd",
    )


@op
def reduce_largest(draw: Draw) -> str:
    """Something is made of elements before they meet the total."""
    a, b, c = draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b},{c}] parameter(0)",
        "init = f32[] parameter(1)",
        f"ROOT r = f32[{b}] reduce(x, init), dimensions={{0,2}}, to_apply=largest",
    )


@op
def reduce_two_results(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"y = f32[{a},{b}] parameter(1)",
        "init = f32[] parameter(2)",
        "one = f32[] constant(1)",
        f"r = (f32[{a}], f32[{a}]) reduce(x, y, init, one), dimensions={{1}}, to_apply=product_and_largest",
        f"s = f32[{a}] get-tuple-element(r), index=0",
        f"m = f32[{a}] get-tuple-element(r), index=1",
        f"ROOT d = f32[{a}] subtract(s, m)",
    )


@op
def reduce_argmax(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"i = s32[{a},{b}] iota(), iota_dimension=1",
        "v0 = f32[] constant(-inf)",
        "i0 = s32[] constant(0)",
        f"r = (f32[{a}], s32[{a}]) reduce(x, i, v0, i0), dimensions={{1}}, to_apply=argmax",
        f"ROOT k = s32[{a}] get-tuple-element(r), index=1",
    )


@op
def reduce_window(draw: Draw) -> str:
    rows, image, span = draw.size(), int(draw.rng.integers(4, 20)), int(draw.rng.integers(1, 5))
    stride, apart = int(draw.rng.choice([1, 2, 3])), int(draw.rng.choice([1, 2]))
    low, high = int(draw.rng.integers(0, 3)), int(draw.rng.integers(0, 3))
    out = WindowDimension(span, stride, low, high, 1, apart).output_size(image)
    if out == 0:
        return reduce_window(draw)
    return text(
        f"x = f32[{rows},{image}] parameter(0)",
        "init = f32[] constant(-inf)",
        f"ROOT r = f32[{rows},{out}] reduce-window(x, init), window={{size=1x{span} stride=1x{stride} "
        f"pad=0_0x{low}_{high} rhs_dilate=1x{apart}}}, to_apply=max",
    )


@op
def reduce_window_largest(draw: Draw) -> str:
    n = int(draw.rng.integers(4, 12))
    return text(
        f"x = f32[{n}] parameter(0)",
        "zero = f32[] constant(0)",
        f"ROOT r = f32[{n}] reduce-window(x, zero), window={{size=3 pad=1_1}}, to_apply=largest",
    )


@op
def reduce_window_two_inits(draw: Draw) -> str:
    """Two windows over one operand that pad with different values: each needs a halo of its own."""
    n = int(draw.rng.integers(4, 12))
    return text(
        f"x = f32[{n}] parameter(0)",
        "low = f32[] constant(-100)",
        "zero = f32[] constant(0)",
        f"a = f32[{n}] reduce-window(x, low), window={{size=3 pad=1_1}}, to_apply=max",
        f"b = f32[{n}] reduce-window(x, zero), window={{size=3 pad=1_1}}, to_apply=add",
        f"ROOT r = f32[{n}] subtract(a, b)",
    )


@op
def select_and_scatter(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = f32[{a},{2 * b}] parameter(0)",
        f"s = f32[{a},{b}] parameter(1)",
        "init = f32[] parameter(2)",
        f"ROOT r = f32[{a},{2 * b}] select-and-scatter(x, s, init), window={{size=1x2 stride=1x2}}, "
        "select=ge, scatter=add",
    )


@op
def select_and_scatter_overlapping(draw: Draw) -> str:
    b = draw.size() + 1
    return text(
        f"x = f32[{b}] parameter(0)",
        f"s = f32[{b - 1}] parameter(1)",
        "init = f32[] constant(0)",
        f"ROOT r = f32[{b}] select-and-scatter(x, s, init), window={{size=2}}, select=ge, scatter=add",
    )
