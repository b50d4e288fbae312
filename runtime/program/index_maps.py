"""Movements of an index map that are known when a kernel runs: shifts of views, ranges of indices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shift:
    """Offset of a dynamic-slice: scalar ``start``, clamped to [0, ``limit``], times ``stride`` bytes."""

    start: int
    limit: int
    stride: int


@dataclass(frozen=True, slots=True)
class Range:
    """Range of the indices of ``dimension`` that lie in [``first``, ``end``) after adding the scalar ``start``, clamped
    to [0, ``limit``]. dimension: None stands for an index of 0.
    """

    dimension: int | None
    start: int
    limit: int
    first: int
    end: int

    def is_of(self, other: Range) -> bool:
        """Return whether both have the same dimension and start, so that only their bounds may differ."""
        return (self.dimension, self.start, self.limit) == (
            other.dimension,
            other.start,
            other.limit,
        )
