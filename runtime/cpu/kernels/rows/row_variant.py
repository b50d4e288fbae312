"""Specialization key of a row fusion's native code: its passes, and the strides of each array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.ir.starts import StartsVariant
from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, host_jit
from runtime.cpu.kernels.loop.loop import Step
from runtime.program.scalar_program import ScalarProgram
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType

#: Most partial sums along a row, so many that they hide the latency of an addition with any vector width.
LANES = 64
#: Fewest arguments of functions' vector variants (codegen/elements/variants.py).
FEWEST = 8
#: Rows of a block: their sums stay in the L1 cache, and contiguous reads are long.
BLOCK = 1024


def lanes_of(length: int, passes: Sequence[RowPassVariant]) -> int:
    """Return the number of partial sums for rows of ``length``: a power of two, at most the next one >= ``length``.

    Short rows have at least as many as the vector variants of the functions that they call. Unused lanes hold neutral
    elements, which do not change the sum.
    """
    lanes = min(LANES, 1 << max(length - 1, 0).bit_length())
    if lanes < FEWEST and any(_has_variants(each.elements.program) for each in passes):
        return FEWEST
    return lanes


def _has_variants(program: ScalarProgram) -> bool:
    """Return whether the program calls functions that have variants for vectors of some lengths only."""
    # Deferred: few programs have rows that short, and a run of cached code writes no other IR.
    from runtime.codegen.elements.variants import VARIANTS
    from runtime.codegen.ir.scalar_program_ir import program_ir

    return any(VARIANTS in text for text in program_ir(program, "body"))


class Storage(Enum):
    """Storage of a pass's elements."""

    ARRAY = "array"
    REDUCTION = "reduction"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Ref:
    storage: Storage
    number: int


@dataclass(frozen=True, slots=True)
class ArrayVariant:
    """Kind of an array's stride along the innermost dimension (``step``). counts: iota numbers (s64), not memory."""

    kind: PrimitiveType
    step: Step
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Program with the sources of its parameters and the targets of its results."""

    program: ScalarProgram
    leaves: tuple[Ref, ...]
    results: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class RowPassVariant:
    """Variant of a pass. elements: at all indices. inits: per row, of reductions. rows: per row, of values, arrays."""

    elements: Part
    inits: Part
    rows: Part


@dataclass(frozen=True, slots=True)
class RowVariant:
    """Variant of a row kernel's code. counted, reduced: numbers of dimensions that count rows, and that run along one.

    lanes: partial sums if rows are contiguous, else 0. interleave: interleave count of loops over elements.
    """

    lanes: int
    counted: int
    reduced: int
    arrays: tuple[ArrayVariant, ...]
    passes: tuple[RowPassVariant, ...]
    reductions: tuple[tuple[ReductionKind, PrimitiveType], ...]
    row_values: tuple[PrimitiveType, ...]
    starts: StartsVariant
    interleave: int = 0

    @property
    def along_rows(self) -> bool:
        return self.lanes > 0


FUNCTION = "spmd_rows"


@cache
def row_code(variant: RowVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes the address of a NestRecord."""
    ir = DeferredIr("runtime.cpu.kernels.rows.rows_ir", "row_ir", (variant,))
    return host_jit().compile(ir, (FUNCTION,))
