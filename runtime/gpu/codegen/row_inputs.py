"""Array accesses of row fusions in GPU kernels, and the inputs and results of each pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from runtime.gpu.codegen.array_access import GpuArrayAccess, leaf_access, view_access
from runtime.gpu.codegen.emitters import GpuArrays
from runtime.gpu.codegen.launch import ArgumentKind
from runtime.program.records.loop import Numbers, OperandElements
from runtime.program.records.rows import RowFusion, RowInput, RowKernel, RowLeaf, Source
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import in_streaming_order, merged_dims
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Scalar program and the sources of its parameters.

    A leaf is the number of an array access, or a reduction, row value or cached value of the fusion.
    """

    program: ScalarProgram
    leaves: tuple[int | RowInput, ...]


@dataclass(frozen=True, slots=True)
class RowPart:
    """Pass of a row fusion.

    elements: program for each element; its results are operands of ``reductions``, then ``cached`` values, then
    elements of the arrays ``results``. inits: program that computes the initial values of the reductions for each row.
    rows: program for each row; its results are ``row_values``, then elements of the arrays ``row_results``. results and
    row_results are numbers of array accesses.
    """

    elements: Part
    reductions: tuple[int, ...]
    cached: tuple[int, ...]
    results: tuple[int, ...]
    inits: Part
    rows: Part
    row_values: tuple[int, ...]
    row_results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowParts:
    """Row fusion with the accesses of its arrays, whose dimensions are merged.

    counted: sizes of the dimensions that number the rows. reduced: sizes of the dimensions along a row. counted_strides
    and reduced_strides have the strides of each access along them, in bytes.
    """

    fusion: RowFusion
    accesses: tuple[GpuArrayAccess, ...]
    counted: tuple[int, ...]
    counted_strides: tuple[tuple[int, ...], ...]
    reduced: tuple[int, ...]
    reduced_strides: tuple[tuple[int, ...], ...]
    passes: tuple[RowPart, ...]

    def producer(self, cached: int) -> tuple[int, int]:
        """Return (pass that computes value ``cached``, index among the results of that pass's ``elements``)."""
        for number, each in enumerate(self.passes):
            if cached in each.cached:
                return number, len(each.reductions) + each.cached.index(cached)
        raise AssertionError("a value is kept before it is read")


def row_parts(kernel: RowKernel, arrays: GpuArrays) -> RowParts:
    """Return the accesses and passes of ``kernel`` on ``arrays``."""
    fusion = kernel.fusion
    found = _Accesses(fusion, arrays)
    passes = []
    for each, leaves in zip(fusion.passes, kernel.leaves, strict=True):
        passes.append(
            RowPart(
                found.part(each.elements, leaves.elements),
                each.reductions,
                each.cached,
                tuple(map(found.result, each.results)),
                found.part(each.inits, leaves.inits),
                found.part(each.rows, leaves.rows),
                each.row_values,
                tuple(map(found.result, each.row_results)),
            )
        )
    reduced = list(fusion.axes)
    if fusion.along_rows:
        along = [replace(w, strides=tuple(w.strides[d] for d in reduced)) for w in found.accesses]
        order = in_streaming_order([fusion.dims[d] for d in reduced], along, len(along))
        reduced = [reduced[n] for n in order]
    counted_sizes, counted_strides = _merged(fusion, found.accesses, fusion.counted)
    reduced_sizes, reduced_strides = _merged(fusion, found.accesses, reduced)
    return RowParts(
        fusion,
        tuple(found.accesses),
        counted_sizes,
        counted_strides,
        reduced_sizes,
        reduced_strides,
        tuple(passes),
    )


def _merged(
    fusion: RowFusion, accesses: Sequence[GpuArrayAccess], chosen: Sequence[int]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    sizes, strides = merged_dims(
        [fusion.dims[d] for d in chosen],
        [[access.strides[d] for d in chosen] for access in accesses],
    )
    if not sizes:
        return (1,), ((0,),) * len(accesses)
    return tuple(sizes), tuple(map(tuple, strides))


@dataclass
class _Accesses:
    """Distinct array accesses of all passes, each with strides along all dimensions."""

    fusion: RowFusion
    arrays: GpuArrays
    accesses: list[GpuArrayAccess] = field(default_factory=list)

    def part(self, program: ScalarProgram, leaves: Sequence[RowLeaf]) -> Part:
        return Part(program, tuple(map(self.input, leaves)))

    def input(self, leaf: RowLeaf) -> int | RowInput:
        if isinstance(leaf, Numbers | OperandElements):
            return self.number(leaf_access(leaf, self.arrays.operands))
        assert leaf.source is not Source.OPERAND
        return leaf

    def result(self, number: int) -> int:
        view = self.fusion.results[number]
        access = view_access(ArgumentKind.RESULT, number, self.arrays.results[number], view)
        return self.number(access)

    def number(self, access: GpuArrayAccess) -> int:
        """Return the number of ``access``, with strides along all dimensions, which is added if it is new."""
        access = replace(access, strides=self.fusion.spread(access.strides))
        if access not in self.accesses:
            self.accesses.append(access)
        return self.accesses.index(access)
