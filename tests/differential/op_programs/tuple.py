"""Tuples that pass through."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def opt_barrier(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"y = f32[{b}] parameter(1)",
        f"t = (f32[{a},{b}], f32[{b}]) tuple(x, y)",
        f"o = (f32[{a},{b}], f32[{b}]) opt-barrier(t)",
        f"u = f32[{a},{b}] get-tuple-element(o), index=0",
        f"v = f32[{b}] get-tuple-element(o), index=1",
        f"w = f32[{a},{b}] broadcast(v), dimensions={{1}}",
        f"ROOT r = f32[{a},{b}] add(u, w)",
    )
