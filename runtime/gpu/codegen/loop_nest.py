"""Loop nests of GPU kernels: their array accesses, the ranges of their indices, and the program for one index."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.dynamic_starts import inside
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.gpu.codegen.array_access import (
    INSTRUCTIONS,
    GpuArrayAccess,
    leaf_access,
    starts_functions,
    view_access,
)
from runtime.gpu.codegen.launch import ArgumentKind
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records.loop import LoopKernel, StartsStage
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import (
    LEAST_TILED,
    Range,
    StridedView,
    in_streaming_order,
    merged_apart,
)
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Nest:
    """Loop nest that runs a scalar program for all indices of ``sizes``, outermost first. No size is 0.

    accesses, strides: those of the program's parameters, then of its results; strides are in bytes along ``sizes``.
    stages: computation of the run-time starts, which read ``operands``. ranges: (dimension, range) for each restriction
    of the indices that run, which depends on the starts; dimension None restricts the entire loop.
    """

    program: ScalarProgram
    sizes: tuple[int, ...]
    accesses: tuple[GpuArrayAccess, ...]
    strides: tuple[tuple[int, ...], ...]
    stages: tuple[StartsStage, ...]
    operands: tuple[StridedView, ...]
    ranges: tuple[tuple[int | None, Range], ...] = ()

    @property
    def inputs(self) -> int:
        """Number of the program's parameters."""
        return len(self.program.parameters)

    @property
    def crossed(self) -> list[bool]:
        """For each access, True if its elements are contiguous along the second innermost dimension.

        Threads along the innermost dimension then access distant elements. It is False in small loops.
        """
        large = len(self.sizes) > 1 and min(self.sizes[-2:]) >= LEAST_TILED
        return [
            large
            and not access.counts
            and own[-2] == access.item
            and own[-1] not in (0, access.item)
            for access, own in zip(self.accesses, self.strides, strict=True)
        ]


def loop_nest(
    kernel: LoopKernel, operands: Sequence[StridedView], results: Sequence[StridedView]
) -> Nest | None:
    """Return the loop nest of ``kernel``, or None if it has no indices. operands, results: layouts of its arrays."""
    if 0 in kernel.dims:
        return None
    shifts = kernel.result_shifts or ((),) * len(kernel.results)
    accesses = [leaf_access(leaf, operands) for leaf in kernel.leaves]
    for view, number, own in zip(kernel.results, kernel.written, shifts, strict=True):
        access = view_access(ArgumentKind.RESULT, number, results[number], view)
        accesses.append(
            GpuArrayAccess(access.argument, access.kind, access.start, access.strides, own)
        )
    return nest_of(kernel.program, kernel.dims, accesses, operands, kernel.starts, kernel.ranges)


def nest_of(
    program: ScalarProgram,
    dims: Sequence[int],
    accesses: Sequence[GpuArrayAccess],
    operands: Sequence[StridedView],
    stages: Sequence[StartsStage] = (),
    ranges: Sequence[Range] = (),
) -> Nest:
    """Return the loop nest of ``program`` over ``dims``, with its dimensions reordered and merged.

    accesses: those of the program's parameters, then of its results. See ``Nest`` for the other arguments.
    """
    order = in_streaming_order(dims, accesses, len(program.parameters))
    positions = {r.dimension: order.index(r.dimension) for r in ranges if r.dimension is not None}
    strides = [[access.strides[d] for d in order] for access in accesses]
    sizes, strides, found = merged_apart([dims[d] for d in order], strides, positions.values())
    if not sizes:
        sizes, strides = [1], [[0] for _ in accesses]
    ranged = tuple(
        (None if r.dimension is None else found[positions[r.dimension]], r) for r in ranges
    )
    return Nest(
        program,
        tuple(sizes),
        tuple(accesses),
        tuple(map(tuple, strides)),
        tuple(stages),
        tuple(operands),
        ranged,
    )


def nest_functions(nest: Nest) -> list[str]:
    """Return the IR of the functions that kernels of ``nest`` call."""
    return [*program_ir(nest.program, "body", INSTRUCTIONS), *starts_functions(nest.stages)]


class Spans:
    """Run-time bounds of the restricted dimensions of a loop nest, and the test of an index against them."""

    def __init__(self, writer: ThreadWriter, nest: Nest, starts: Sequence[str]) -> None:
        value = writer.value
        self.writer = writer
        self.spans: dict[int | None, tuple[str, str]] = {}
        for d, each in nest.ranges:
            shift = inside(Int(writer, "i64", starts[each.start]), each.limit).name
            begins, ends = (value(f"sub i64 {edge}, {shift}") for edge in (each.first, each.end))
            begin, last = self.spans.get(d, ("0", "1" if d is None else str(nest.sizes[d])))
            self.spans[d] = (
                value(f"call i64 @llvm.smax.i64(i64 {begin}, i64 {begins})"),
                value(f"call i64 @llvm.smin.i64(i64 {last}, i64 {ends})"),
            )

    def holds(self, indices: Sequence[str]) -> str | None:
        """Emit the test that ``indices`` are in all ranges and return it (i1), or None if there are no ranges."""
        value, found = self.writer.value, ""
        for d, (begin, end) in self.spans.items():
            at = "0" if d is None else self.writer.to_i64(indices[d])
            for condition in (f"sge i64 {at}, {begin}", f"slt i64 {at}, {end}"):
                one = value(f"icmp {condition}")
                found = value(f"and i1 {found}, {one}") if found else one
        return found or None


def body(writer: ThreadWriter, nest: Nest, elements: Sequence[str]) -> list[str]:
    """Emit the call of the program with ``elements`` and return its results."""
    struct = struct_type(nest.program)
    typed = [f"{access.stored} {x}" for access, x in zip(nest.accesses, elements, strict=False)]
    made = writer.value(f"call {struct} @body({', '.join(typed)})")
    count = len(nest.accesses) - nest.inputs
    return [writer.value(f"extractvalue {struct} {made}, {n}") for n in range(count)]
