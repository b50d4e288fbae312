"""Attention of random sizes, masks and biases, with or without gradients, and blocks of a ring."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.runtime.fusion.attention.attention_programs import (
    BF16,
    F32,
    Attention,
    attention_module,
    ring_module,
)
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger(
    "attention-fusion",
    finite="a row with an infinite score has no sums that another order of summation keeps",
)
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    # With gradients, row sums are computed from the rounded output, as FlashAttention does. The original program's own
    # rounding does not explain that in rows of few bf16 numbers.
    gradients = p.chance(0.7)
    case = Attention(
        batch=p.integer(1, 2),
        groups=p.integer(1, 3),
        heads=p.integer(1, 3),
        rows=p.integer(2, 9),
        columns=p.integer(2, 9),
        depth=p.integer(1, 8),
        features=p.integer(1, 8),
        kind=BF16 if p.chance() and not gradients else F32,
        mask=("none", "causal", "window", "segments", "pred")[p.integer(0, 4)],
        cap=30.0 if p.chance(0.3) else 0.0,
        quotient=p.chance(),
        gradients=gradients,
        dropout=0.5 if p.chance(0.2) else 0.0,
        through_maxima=p.chance(0.3),
    )
    return ring_module(case) if p.chance(0.2) else attention_module(case)
