"""Values without operands."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def iota(draw: Draw) -> str:
    n, m = draw.size(), draw.size()
    d = int(draw.rng.integers(2))
    return text(
        f"x = s32[{n},{m}] parameter(0)",
        f"i = s32[{n},{m}] iota(), iota_dimension={d}",
        f"ROOT r = s32[{n},{m}] add(x, i)",
    )


@op
def iota_of_small_floats(draw: Draw) -> str:
    """bf16 cannot tell 771 from 772: the count must be made in integers."""
    n = int(draw.rng.integers(700, 1100))
    return text(
        f"x = bf16[{n}] parameter(0)",
        f"i = bf16[{n}] iota(), iota_dimension=0",
        f"ROOT r = bf16[{n}] maximum(x, i)",
    )


@op
def constant(draw: Draw) -> str:
    values = ", ".join(str(v) for v in draw.rng.integers(0, 9, 6))
    return text(
        "x = f32[6] parameter(0)",
        f"c = f32[6] constant({{{values}}})",
        "s = f32[6] constant({2, 2, 2, 2, 2, 2})",
        "y = f32[6] multiply(x, s)",
        "ROOT r = f32[6] add(c, y)",
    )
