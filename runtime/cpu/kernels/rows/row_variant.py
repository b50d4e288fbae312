"""Specialization key of a row fusion's native code: its passes, and the strides of each array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from runtime.codegen.elements import variants
from runtime.codegen.ir.dynamic_starts import StartsVariant
from runtime.codegen.ir.scalar_program_ir import program_ir
from runtime.cpu.kernels.loop.loop_ir import Step
from runtime.program.scalar_program import ScalarProgram
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType

#: The most sums side by side along a row: they hide the latency of an addition behind vectors of any processor.
LANES = 64
#: Rows side by side: their sums stay in the nearest cache, and a piece of memory read at once is long.
BLOCK = 1024


def lanes_of(length: int, passes: Sequence[PassForm]) -> int:
    """Return the sums side by side for rows of ``length``: a power of two, no larger than the next one above.

    Short rows have at least as many as the functions that they call have variants for. The lanes that are left over
    hold neutral elements, which do not change the sum.
    """
    lanes = min(LANES, 1 << max(length - 1, 0).bit_length())
    fewest = min(variants.LANES)
    if lanes < fewest and any(_has_variants(each.elements.program) for each in passes):
        return fewest
    return lanes


def _has_variants(program: ScalarProgram) -> bool:
    """Return whether the program calls functions that have variants for vectors of some lengths only."""
    return any(variants.VARIANTS in text for text in program_ir(program, "body"))


class Held(Enum):
    """Source of a pass's elements."""

    ARRAY = "array"
    REDUCTION = "reduction"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Ref:
    held: Held
    number: int


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """``step``: along the innermost dimension. counts: numbers (s64), not memory."""

    kind: PrimitiveType
    step: Step
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A program, where its parameters come from, and where its results go."""

    program: ScalarProgram
    leaves: tuple[Ref, ...]
    results: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class PassForm:
    """elements: at all indices, to reductions and arrays. inits: per row, to reductions. rows: per row, to the rest."""

    elements: Part
    inits: Part
    rows: Part


@dataclass(frozen=True, slots=True)
class RowForm:
    """counted, reduced: dimensions that count the rows, and that run along one; the last one given is the innermost.

    lanes: sums side by side where neighbours are of one row, else 0. together: vectors that loops over elements compute
    side by side.
    """

    lanes: int
    counted: int
    reduced: int
    arrays: tuple[ArrayForm, ...]
    passes: tuple[PassForm, ...]
    reductions: tuple[tuple[ReductionKind, PrimitiveType], ...]
    row_values: tuple[PrimitiveType, ...]
    starts: StartsVariant
    together: int = 0

    @property
    def along_rows(self) -> bool:
        return self.lanes > 0
