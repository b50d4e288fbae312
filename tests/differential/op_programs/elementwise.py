"""Elementwise ops."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def elementwise(draw: Draw) -> str:
    d = f"[{draw.size()},{draw.size()}]"
    return text(
        f"x = f32{d} parameter(0)",
        f"y = f32{d} parameter(1)",
        "s = f32[] parameter(2)",
        f"z = f32{d} clamp(s, x, y)",
        f"p = pred{d} compare(x, z), direction=LT",
        f"ROOT r = f32{d} select(p, z, y)",
    )


@op
def bitcast_convert(draw: Draw) -> str:
    n, m = draw.size(), draw.size()
    return text(f"x = f32[{n},{m}] parameter(0)", f"ROOT r = u8[{n},{m},4] bitcast-convert(x)")
