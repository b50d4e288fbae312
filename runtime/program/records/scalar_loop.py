"""Record of a while loop whose values are all scalars."""

from __future__ import annotations

from runtime.program.scalar_program import ScalarProgram
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement elements[writes] = program(elements[reads]), where ``reads`` and ``writes`` are numbers of elements."""

    program: ScalarProgram
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScalarLoop:
    """While loop on scalars: runs ``condition`` and, while element ``predicate`` is true, ``body`` and ``condition``.

    ``kinds`` are the types of the elements.
    """

    kinds: tuple[PrimitiveType, ...]
    condition: tuple[Statement, ...]
    body: tuple[Statement, ...]
    predicate: int
