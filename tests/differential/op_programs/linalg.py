"""Transforms and solves of whole rows."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def fft(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        f"x = c64[{a},{b},4] parameter(0)",
        f"ROOT r = c64[{a},{b},4] fft(x), fft_type=FFT, fft_length={{4}}",
    )


@op
def triangular_solve(draw: Draw) -> str:
    a, b = draw.size(), draw.size()
    return text(
        "one = f32[] constant(1)",
        f"e = f32[{a},2,2] broadcast(one), dimensions={{}}",
        f"x = f32[{a},2,{b}] parameter(0)",
        f"ROOT r = f32[{a},2,{b}] triangular-solve(e, x), left_side=true, lower=true, "
        "unit_diagonal=true, transpose_a=NO_TRANSPOSE",
    )
