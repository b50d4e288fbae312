"""Elements keep their values and change their places: reshape, transpose, broadcast, reverse."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def reshape(draw: Draw) -> str:
    source, target = [
        ((8, 6), (2, 4, 6)),
        ((4, 6), (24,)),
        ((24,), (4, 6)),
        ((6, 2), (4, 3)),
        ((4, 3, 2), (12, 2)),
        ((1, 9), (9, 1, 1)),
        ((5, 4), (5, 2, 2)),
        ((12, 2), (8, 3)),
        ((2, 6, 3), (4, 9)),
    ][int(draw.rng.integers(9))]
    return text(
        f"x = f32[{','.join(map(str, source))}] parameter(0)",
        f"ROOT r = f32[{','.join(map(str, target))}] reshape(x)",
    )


@op
def transpose(draw: Draw) -> str:
    a, b, c = draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{a},{b},{c}] parameter(0)",
        f"ROOT r = f32[{c},{a},{b}] transpose(x), dimensions={{2,0,1}}",
    )


@op
def broadcast(draw: Draw) -> str:
    a, b, c = draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{a},{c}] parameter(0)",
        f"ROOT r = f32[{a},{b},{c}] broadcast(x), dimensions={{0,2}}",
    )


@op
def reverse(draw: Draw) -> str:
    a, b = draw.size(), int(draw.rng.integers(1, 20))
    dims = str(draw.rng.choice(["0", "1", "0,1"]))
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"ROOT r = f32[{a},{b}] reverse(x), dimensions={{{dims}}}",
    )
