"""Matrix products."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def dot(draw: Draw) -> str:
    b, i, j, k = (draw.size() for _ in range(4))
    return text(
        f"x = f32[{b},{i},{k}] parameter(0)",
        f"y = f32[{k},{b},{j}] parameter(1)",
        f"ROOT r = f32[{b},{i},{j}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{1}}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    )
