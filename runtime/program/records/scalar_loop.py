"""Record of a loop of which every value is one element."""

from __future__ import annotations

from runtime.program.scalar_program import ScalarProgram
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Statement:
    """elements[writes] = program(elements[reads]). reads, writes: numbers of elements."""

    program: ScalarProgram
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScalarLoop:
    """Run ``condition``; while element ``predicate`` is true, run ``body`` and ``condition``."""

    kinds: tuple[PrimitiveType, ...]
    condition: tuple[Statement, ...]
    body: tuple[Statement, ...]
    predicate: int
