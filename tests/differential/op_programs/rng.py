"""Random bits."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def rng_bits(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        "s = u64[2] parameter(0)",
        f"g = (u64[2], u32[{a},{b}]) rng-bit-generator(s), algorithm=rng_three_fry",
        f"ROOT r = u32[{a},{b}] get-tuple-element(g), index=1",
    )
