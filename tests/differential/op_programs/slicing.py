"""Parts of arrays: slices, pads, concatenations, rolls."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def static_slice(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    start = int(draw.rng.integers(b))
    limit = int(draw.rng.integers(start, b)) + 1
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"ROOT r = f32[{a},{limit - start}] slice(x), slice={{[0:{a}], [{start}:{limit}]}}",
    )


@op
def strided_slice(draw: Draw) -> str:
    n, stride, start = (
        int(draw.rng.integers(4, 20)),
        int(draw.rng.choice([2, 3])),
        int(draw.rng.integers(0, 4)),
    )
    limit = int(draw.rng.integers(start + 1, n + 1))
    part = -(-(limit - start) // stride)
    return text(
        f"x = f32[{n},7] parameter(0)",
        f"ROOT r = f32[{part},5] slice(x), slice={{[{start}:{limit}:{stride}], [1:6]}}",
    )


@op
def pad(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    low, high, inside = (int(draw.rng.integers(*r)) for r in ((-1, 6), (-1, 6), (0, 2)))
    b = b + 2
    out = low + high + b + inside * (b - 1)
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        "p = f32[] parameter(1)",
        f"ROOT r = f32[{a},{out}] pad(x, p), padding=0_0x{low}_{high}_{inside}",
    )


@op
def concatenate(draw: Draw) -> str:
    a, b, c = draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"y = f32[{a},{c}] parameter(1)",
        f"ROOT r = f32[{a},{b + c + b}] concatenate(x, y, x), dimensions={{1}}",
    )


@op
def roll(draw: Draw) -> str:
    n = int(draw.rng.integers(3, 17))
    k = int(draw.rng.integers(1, n))
    return text(
        f"x = f32[{n},2] parameter(0)",
        f"a = f32[{k},2] slice(x), slice={{[{n - k}:{n}], [0:2]}}",
        f"b = f32[{n - k},2] slice(x), slice={{[0:{n - k}], [0:2]}}",
        f"ROOT r = f32[{n},2] concatenate(a, b), dimensions={{0}}",
    )


@op
def edges(draw: Draw) -> str:
    """Pad by repeating both ends, then difference of neighbours."""
    n, m = int(draw.rng.integers(3, 17)), draw.size()
    return text(
        f"x = f32[{n},{m}] parameter(0)",
        f"a = f32[1,{m}] slice(x), slice={{[0:1], [0:{m}]}}",
        f"b = f32[1,{m}] slice(x), slice={{[{n - 1}:{n}], [0:{m}]}}",
        f"p = f32[{n + 2},{m}] concatenate(a, x, b), dimensions={{0}}",
        f"u = f32[{n},{m}] slice(p), slice={{[0:{n}], [0:{m}]}}",
        f"v = f32[{n},{m}] slice(p), slice={{[2:{n + 2}], [0:{m}]}}",
        f"ROOT r = f32[{n},{m}] subtract(u, v)",
    )


@op
def dynamic_slice(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    u, v = int(draw.rng.integers(1, a + 1)), int(draw.rng.integers(1, b + 1))
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        "i = s32[] parameter(1)",
        "j = s32[] parameter(2)",
        f"ROOT r = f32[{u},{v}] dynamic-slice(x, i, j), dynamic_slice_sizes={{{u},{v}}}",
    )


@op
def dynamic_update_slice(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    u, v = int(draw.rng.integers(1, a + 1)), int(draw.rng.integers(1, b + 1))
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"u = f32[{u},{v}] parameter(1)",
        "i = s32[] parameter(2)",
        "j = s32[] parameter(3)",
        f"ROOT r = f32[{a},{b}] dynamic-update-slice(x, u, i, j)",
    )
