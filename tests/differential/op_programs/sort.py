"""Sort and top-k."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def sort(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"y = f32[{a},{b}] parameter(1)",
        f"r = (f32[{a},{b}], f32[{a},{b}]) sort(x, y), dimensions={{1}}, is_stable=true, to_apply=less2",
        f"ROOT k = f32[{a},{b}] get-tuple-element(r), index=1",
    )


@op
def topk(draw: Draw) -> str:
    """Few different values: most choices are between equals."""
    a, b = draw.size(), int(draw.rng.integers(2, 20))
    k = int(draw.rng.integers(1, min(b, 6) + 1))
    largest = str(bool(draw.rng.integers(2))).lower()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"ROOT r = (f32[{a},{k}], s32[{a},{k}]) topk(x), k={k}, largest={largest}",
    )
