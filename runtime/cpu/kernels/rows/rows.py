"""Row kernels, which reduce along rows and compute with the reduced values, as one native call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import Enum
from functools import cache

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, host_jit
from runtime.cpu.kernels.loop.loop import (
    ArrayAccess,
    InnerStride,
    access_of,
    leaf_access,
    starting_accesses,
    starts_record,
    starts_variant,
)
from runtime.cpu.kernels.native_call import NOTHING, native_call
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.loop import Numbers, OperandElements
from runtime.program.records.rows import (
    PassLeaves,
    RowFusion,
    RowKernel,
    RowLeaf,
    RowPass,
    Source,
)
from runtime.program.scalar_program import ScalarProgram
from runtime.program.slice_starts import NestRecord, StartsVariant
from runtime.program.strides import (
    dense_strides,
    in_streaming_order,
    long_one_last,
    merged_dims,
)
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@CPU_KERNELS.binds(RowKernel)
def bind_rows(kernel: RowKernel, arrays: KernelArrays) -> Action:
    """Bind the kernel as one native call over the merged dimensions that count rows and that run along them."""
    fusion = kernel.fusion
    if any(fusion.dims[d] == 0 for d in fusion.counted):
        return NOTHING
    accesses = _Accesses(fusion, arrays)
    starts = starting_accesses(kernel.starts, arrays.operands)
    passes = tuple(
        accesses.pass_variant(each, leaves)
        for each, leaves in zip(fusion.passes, kernel.leaves, strict=True)
    )
    found = [access for access, _ in accesses.numbers]
    counted, reduced = list(fusion.counted), list(fusion.axes)
    if kernel.along_rows:
        order = in_streaming_order(
            [fusion.dims[d] for d in reduced],
            [ArrayAccess(w.start, tuple(w.strides[d] for d in reduced), w.item) for w in found],
            len(found),
        )
        reduced = [reduced[n] for n in order]
    counted_sizes, counted_strides = _merged(fusion, found, counted)
    if not kernel.along_rows:  # the order within a sum does not change
        if not counted_sizes:  # a piece of one row
            counted_sizes, counted_strides = [1], [[0] for _ in counted_strides]
        order = long_one_last(counted_sizes, counted_strides)
        counted_sizes = [counted_sizes[n] for n in order]
        counted_strides = [[own[n] for n in order] for own in counted_strides]
    reduced_sizes, reduced_strides = _merged(fusion, found, reduced)
    inner = reduced_strides if kernel.along_rows else counted_strides
    innermost = (reduced_sizes if kernel.along_rows else counted_sizes)[-1]
    variant = RowVariant(
        lanes_of(innermost, passes) if kernel.along_rows else 0,
        len(counted_sizes),
        len(reduced_sizes),
        tuple(
            ArrayVariant(kind, InnerStride.of(strides[-1], access.item), access.counts)
            for (access, kind), strides in zip(accesses.numbers, inner, strict=True)
        ),
        passes,
        tuple((reduction.kind, reduction.element_type) for reduction in fusion.reductions),
        fusion.row_values,
        starts_variant(starts, found),
    )
    strides = [[*a, *b] for a, b in zip(counted_strides, reduced_strides, strict=True)]
    firsts, sizes = [w.start for w in found], [*counted_sizes, *reduced_sizes]
    record = NestRecord(firsts, sizes, strides, starts_record(starts, found))
    every = (*arrays.operands, *arrays.results, *arrays.scratch)
    return native_call(row_code(variant), FUNCTION, record.to_array(), every)


def _merged(
    fusion: RowFusion, accesses: Sequence[ArrayAccess], chosen: Sequence[int]
) -> tuple[list[int], list[list[int]]]:
    """Return the sizes of the merged dimensions ``chosen``, and the strides of ``accesses`` along them."""
    sizes = [fusion.dims[d] for d in chosen]
    return merged_dims(sizes, [[access.strides[d] for d in chosen] for access in accesses])


@dataclass
class _Accesses:
    """Accesses of all passes to arrays, each over all dimensions of the fusion.

    ``numbers`` has the distinct accesses with their element types. A Ref to an array is its number.
    """

    fusion: RowFusion
    arrays: KernelArrays
    numbers: dict[tuple[ArrayAccess, PrimitiveType], int] = field(default_factory=dict)

    def pass_variant(self, each: RowPass, leaves: PassLeaves) -> RowPassVariant:
        """Return the variant of a pass with ``leaves``, after adding the accesses of the pass."""
        reductions = tuple(Ref(Storage.REDUCTION, n) for n in each.reductions)
        elements = (
            *reductions,
            *map(self.scratch_row, each.cached),
            *map(self.result, each.results),
        )
        rows = (
            *(Ref(Storage.ROW, n) for n in each.row_values),
            *map(self.result, each.row_results),
        )
        return RowPassVariant(
            self.part(each.elements, leaves.elements, elements),
            self.part(each.inits, leaves.inits, reductions),
            self.part(each.rows, leaves.rows, rows),
        )

    def part(
        self, program: ScalarProgram, leaves: Sequence[RowLeaf], results: tuple[Ref, ...]
    ) -> Part:
        return Part(program, tuple(map(self.input, leaves)), results)

    def input(self, leaf: RowLeaf) -> Ref:
        """Return the reference to a leaf."""
        if isinstance(leaf, Numbers | OperandElements):
            kind = PrimitiveType.S64 if isinstance(leaf, Numbers) else leaf.view.element_type
            return self.array(leaf_access(leaf, self.arrays.operands), kind)
        if leaf.source is Source.CACHED:
            return self.scratch_row(leaf.number)
        return Ref(
            Storage.REDUCTION if leaf.source is Source.REDUCTION else Storage.ROW, leaf.number
        )

    def result(self, number: int) -> Ref:
        """Return the reference to result ``number`` of the fusion."""
        view = self.fusion.results[number]
        return self.array(access_of(view, self.arrays.results[number]), view.element_type)

    def scratch_row(self, number: int) -> Ref:
        """Return the reference to a cached row in scratch memory, which each row of the fusion overwrites."""
        fusion, kind = self.fusion, self.fusion.cached[number]
        along = dense_strides(tuple(fusion.dims[d] for d in fusion.axes), kind.byte_size)
        steps = dict(zip(fusion.axes, along, strict=True))
        strides = tuple(steps.get(d, 0) for d in range(len(fusion.dims)))
        return self.array(
            ArrayAccess(self.arrays.scratch[number].ctypes.data, strides, kind.byte_size), kind
        )

    def array(self, access: ArrayAccess, kind: PrimitiveType) -> Ref:
        """Return the reference to ``access``, with strides over all dimensions, which is added if it is new."""
        access = replace(access, strides=self.fusion.spread(access.strides))
        number = self.numbers.setdefault((access, kind), len(self.numbers))
        return Ref(Storage.ARRAY, number)


# ---- variants of code


#: Most partial sums along a row: so many hide the latency of an addition with any vector width (Zen 5, sums of f32
#: rows: 16 take 1.2 to 3.9 times as long, 32 1.0 to 2.0, 128 0.7 to 1.2).
LANES = 64
#: Length of the shortest vector variants of functions (codegen/elements/variants.py).
FEWEST = 8
#: Rows of a block: their sums stay in the L1 cache, and contiguous reads are long (Zen 5, sums of f32 columns: 128 take
#: 1.0 to 1.5 times as long, 4096 0.9 to 1.0).
BLOCK = 1024


def lanes_of(length: int, passes: Sequence[RowPassVariant]) -> int:
    """Return the number of partial sums along rows of ``length`` elements, a power of two.

    It is the least that is not smaller than ``length``, but at most LANES, and, if ``passes`` call functions with
    vector variants, at least FEWEST. Unused lanes hold neutral elements, which do not change the sum.
    """
    lanes = min(LANES, 1 << max(length - 1, 0).bit_length())
    if lanes < FEWEST and any(_has_variants(each.elements.program) for each in passes):
        return FEWEST
    return lanes


def _has_variants(program: ScalarProgram) -> bool:
    """Return whether the program calls functions that have variants for some vector lengths only."""
    # Deferred: few programs have rows that short, and a run of cached code writes no other IR.
    from runtime.codegen.elements.variants import VARIANTS
    from runtime.codegen.ir.scalar_program_ir import program_ir

    return any(VARIANTS in text for text in program_ir(program, "body"))


class Storage(Enum):
    """Storage of the elements that a pass reads or writes: an array, the results of reductions, or values per row."""

    ARRAY = "array"
    REDUCTION = "reduction"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Ref:
    """Reference to number ``number`` among the arrays, reductions or row values of a kernel."""

    storage: Storage
    number: int


@dataclass(frozen=True, slots=True)
class ArrayVariant:
    """Type of an array's elements and kind of its innermost stride. If it ``counts``, it is iota numbers (s64)."""

    kind: PrimitiveType
    step: InnerStride
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Program of a pass, with the sources of its parameters and the targets of its results."""

    program: ScalarProgram
    leaves: tuple[Ref, ...]
    results: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class RowPassVariant:
    """Variant of a pass.

    ``elements`` is computed for each element. ``inits`` is computed once per row, for the initial values of reductions,
    and ``rows`` once per row after the pass, for row values and results.
    """

    elements: Part
    inits: Part
    rows: Part


@dataclass(frozen=True, slots=True)
class RowVariant:
    """Variant of a row kernel's code. ``counted`` dimensions number the rows; ``reduced`` dimensions run along a row.

    ``lanes`` is the number of partial sums if the innermost loop runs along a row, and 0 if it runs over adjacent rows.
    """

    lanes: int
    counted: int
    reduced: int
    arrays: tuple[ArrayVariant, ...]
    passes: tuple[RowPassVariant, ...]
    reductions: tuple[tuple[ReductionKind, PrimitiveType], ...]
    row_values: tuple[PrimitiveType, ...]
    starts: StartsVariant

    @property
    def along_rows(self) -> bool:
        """Return whether the innermost loop runs along a row."""
        return self.lanes > 0


FUNCTION = "spmd_rows"


@cache
def row_code(variant: RowVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a NestRecord."""
    ir = DeferredIr("runtime.cpu.kernels.rows.rows_ir", "row_ir", (variant,))
    return host_jit().compile(ir, (FUNCTION,))
