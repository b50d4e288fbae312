"""Sharding rules of transforms and factorizations."""

from __future__ import annotations

import pytest
from rule_notation import rule_text

RULES = {
    "r = c64[4,3,8] fft(c64[4,3,8] x), fft_type=FFT, fft_length={8}": "abC->abD",
    "r = c64[4,3,5] fft(f32[4,3,8] x), fft_type=RFFT, fft_length={3,8}": "aBC->aDE",
    "r = f32[4,3,3] cholesky(f32[4,3,3] x), lower=true": "aBC->aDE",
    "r = f32[4,3,5] triangular-solve(f32[4,3,3] a, f32[4,3,5] b), left_side=true, lower=true, "
    "unit_diagonal=false, transpose_a=NO_TRANSPOSE": "aBC,aDe->aFe",
    "r = f32[4,5,3] triangular-solve(f32[4,3,3] a, f32[4,5,3] b), lower=true, "
    "unit_diagonal=false, transpose_a=NO_TRANSPOSE": "aBC,ade->adf".replace("e", "E").replace(
        "f", "F"
    ),
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]
