"""Base of the attribute records, and the attributes of elementwise operations, which compiled programs have, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attrs:
    """Base of the attribute records, one frozen dataclass per op family (spmd/ops/<family>.py).

    The computations that an instruction calls are graph nodes, in ``HloInstruction.called_computations``.
    """


NO_ATTRS = Attrs()


# ---- elementwise
@dataclass(frozen=True, slots=True)
class CompareAttrs(Attrs):
    direction: str  # EQ NE GE GT LE LT
    type: str = ""  # FLOAT TOTALORDER SIGNED UNSIGNED, or omitted


@dataclass(frozen=True, slots=True)
class ReducePrecisionAttrs(Attrs):
    exponent_bits: int
    mantissa_bits: int


@dataclass(frozen=True, slots=True)
class ResultAccuracyAttrs(Attrs):
    """Attributes of unary functions with result_accuracy; ``text`` is the content of the braces."""

    text: str
