"""Row fusions of GPU kernels: the accessed arrays, and the inputs and results of each pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runtime.fusion.row_fusion import RowFusion, RowInput, Source
from runtime.gpu.codegen.array_access import GpuWalk, leaf_access, seen_walk
from runtime.gpu.codegen.emitters import GpuArrays
from runtime.gpu.codegen.launch import Held
from runtime.program.index_order import in_streaming_order, merged_dims
from runtime.program.records.loop import Numbers, OperandElements
from runtime.program.records.rows import RowKernel, RowLeaf
from runtime.program.scalar_program import ScalarProgram


@dataclass(frozen=True, slots=True)
class Part:
    """Program whose parameters are elements of arrays (by number), reductions, row values, or kept values."""

    program: ScalarProgram
    leaves: tuple[int | RowInput, ...]


@dataclass(frozen=True, slots=True)
class RowPart:
    """One pass. results, row_results: numbers of arrays; they follow reductions and kept values, or row values."""

    elements: Part
    reductions: tuple[int, ...]
    kept: tuple[int, ...]
    results: tuple[int, ...]
    inits: Part
    rows: Part
    row_values: tuple[int, ...]
    row_results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowParts:
    """Array accesses with strides over the rows (``counted``) and along one (``reduced``), with merged dimensions."""

    fusion: RowFusion
    walks: tuple[GpuWalk, ...]
    counted: tuple[int, ...]
    counted_strides: tuple[tuple[int, ...], ...]
    reduced: tuple[int, ...]
    reduced_strides: tuple[tuple[int, ...], ...]
    passes: tuple[RowPart, ...]

    def producer(self, kept: int) -> tuple[int, int]:
        """Return the pass that keeps value ``kept``, and its index among the results of that pass's elements."""
        for number, each in enumerate(self.passes):
            if kept in each.kept:
                return number, len(each.reductions) + each.kept.index(kept)
        raise AssertionError("a value is kept before it is read")


def row_parts(kernel: RowKernel, arrays: GpuArrays) -> RowParts:
    fusion = kernel.fusion
    found = _Walks(fusion, arrays)
    passes = []
    for each, leaves in zip(fusion.passes, kernel.leaves, strict=True):
        passes.append(
            RowPart(
                found.part(each.elements.program, leaves.elements),
                each.reductions,
                each.cached,
                tuple(map(found.result, each.results)),
                found.part(each.inits.program, leaves.inits),
                found.part(each.rows.program, leaves.rows),
                each.row_values,
                tuple(map(found.result, each.row_results)),
            )
        )
    reduced = list(fusion.axes)
    if fusion.along_rows:
        along = [replace(w, strides=tuple(w.strides[d] for d in reduced)) for w in found.walks]
        order = in_streaming_order([fusion.dims[d] for d in reduced], along, len(along))
        reduced = [reduced[n] for n in order]
    counted_sizes, counted_strides = _merged(fusion, found.walks, fusion.counted)
    reduced_sizes, reduced_strides = _merged(fusion, found.walks, reduced)
    return RowParts(
        fusion,
        tuple(found.walks),
        counted_sizes,
        counted_strides,
        reduced_sizes,
        reduced_strides,
        tuple(passes),
    )


def _merged(
    fusion: RowFusion, walks: Sequence[GpuWalk], chosen: Sequence[int]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    sizes, strides = merged_dims(
        [fusion.dims[d] for d in chosen], [[walk.strides[d] for d in chosen] for walk in walks]
    )
    if not sizes:
        return (1,), ((0,),) * len(walks)
    return tuple(sizes), tuple(map(tuple, strides))


@dataclass
class _Walks:
    """The arrays that passes read and write, each as an access over all indices; equal accesses are one."""

    fusion: RowFusion
    arrays: GpuArrays
    walks: list[GpuWalk] = field(default_factory=list)

    def part(self, program: ScalarProgram, leaves: Sequence[RowLeaf]) -> Part:
        return Part(program, tuple(map(self.input, leaves)))

    def input(self, leaf: RowLeaf) -> int | RowInput:
        if isinstance(leaf, Numbers | OperandElements):
            return self.number(self.spread(leaf_access(leaf, self.arrays.operands)))
        assert leaf.source is not Source.OPERAND
        return leaf

    def result(self, number: int) -> int:
        view = self.fusion.results[number]
        walk = seen_walk(Held.RESULT, number, self.arrays.results[number], view)
        return self.number(self.spread(walk))

    def spread(self, walk: GpuWalk) -> GpuWalk:
        """Return the access over all indices for one that is over these or over the rows alone."""
        if len(walk.strides) == len(self.fusion.dims):
            return walk
        steps = dict(zip(self.fusion.counted, walk.strides, strict=True))
        return replace(walk, strides=tuple(steps.get(d, 0) for d in range(len(self.fusion.dims))))

    def number(self, walk: GpuWalk) -> int:
        if walk not in self.walks:
            self.walks.append(walk)
        return self.walks.index(walk)
