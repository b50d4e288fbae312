"""Loops over all indices on a GPU: every thread takes some neighbouring elements, then goes on a whole grid further."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from runtime.codegen.llvm_starts import inside
from runtime.codegen.ptx_forms import GpuArrays, Sources, gpu_form
from runtime.codegen.ptx_launch import Held, KernelSource, PtxTarget
from runtime.codegen.ptx_walk import (
    INSTRUCTIONS,
    GpuWalk,
    array_walk,
    computed,
    index_type,
    leaf_walk,
    load,
    moved,
    piece,
    place_at,
    seen_walk,
    starts_functions,
    store,
)
from runtime.codegen.ptx_writer import PtxWriter
from runtime.codegen.scalar_program import ScalarProgram, program_ir, struct_type
from runtime.fusion.piecewise import Range
from runtime.kernels.index_order import in_streaming_order, merged_apart
from runtime.kernels.loop import LoopKernel, PiecesKernel, StartsStage
from runtime.kernels.native_elementwise import NativeElementwiseKernel, one_operation
from runtime.kernels.unwritten import UnwrittenKernel
from runtime.strides import StridedView

#: Of a block.
THREADS = 256
#: Blocks for a multiprocessor: of more work the threads take several rounds.
BLOCKS = 32
#: Bytes that one instruction moves, and the most elements that a thread takes at once.
_WIDEST, _MOST_ELEMENTS = 16, 8
#: Elements of all arrays that a thread holds at once, so that registers suffice.
_MOST_HELD = 64


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop nest: walks of the program's parameters, then of its results, over ``sizes``; none of them is 0.

    ranges: dimensions of which not all indices count (None: of a single one), with the starts that say which.
    """

    program: ScalarProgram
    sizes: tuple[int, ...]
    walks: tuple[GpuWalk, ...]
    strides: tuple[tuple[int, ...], ...]
    stages: tuple[StartsStage, ...]
    operands: tuple[StridedView, ...]
    ranges: tuple[tuple[int | None, Range], ...] = ()

    @property
    def inputs(self) -> int:
        return len(self.program.parameters)


def loop_nest(
    kernel: LoopKernel, operands: Sequence[StridedView], results: Sequence[StridedView]
) -> Nest | None:
    """None: there is no index."""
    if 0 in kernel.dims:
        return None
    shifts = kernel.result_shifts or ((),) * len(kernel.results)
    walks = [leaf_walk(leaf, operands) for leaf in kernel.leaves]
    for number, (view, own) in enumerate(zip(kernel.results, shifts, strict=True)):
        walk = seen_walk(Held.RESULT, number, results[number], view)
        walks.append(GpuWalk(walk.argument, walk.kind, walk.start, walk.strides, own))
    return nest_of(kernel.program, kernel.dims, walks, operands, kernel.starts, kernel.ranges)


def nest_of(
    program: ScalarProgram,
    dims: Sequence[int],
    walks: Sequence[GpuWalk],
    operands: Sequence[StridedView],
    stages: Sequence[StartsStage] = (),
    ranges: Sequence[Range] = (),
) -> Nest:
    order = in_streaming_order(dims, walks, len(program.parameters))
    places = {r.dimension: order.index(r.dimension) for r in ranges if r.dimension is not None}
    strides = [[walk.strides[d] for d in order] for walk in walks]
    sizes, strides, found = merged_apart([dims[d] for d in order], strides, places.values())
    if not sizes:
        sizes, strides = [1], [[0] for _ in walks]
    ranged = tuple((None if r.dimension is None else found[places[r.dimension]], r) for r in ranges)
    return Nest(
        program,
        tuple(sizes),
        tuple(walks),
        tuple(map(tuple, strides)),
        tuple(stages),
        tuple(operands),
        ranged,
    )


@gpu_form(LoopKernel)
def loop_form(kernel: LoopKernel, arrays: GpuArrays) -> Sources:
    nest = loop_nest(kernel, arrays.operands, arrays.results)
    return () if nest is None else (loop_source(nest, arrays.target),)


@gpu_form(PiecesKernel)
def pieces_form(kernel: PiecesKernel, arrays: GpuArrays) -> Sources:
    nests = [loop_nest(piece, arrays.operands, arrays.results) for piece in kernel.pieces]
    return tuple(loop_source(nest, arrays.target) for nest in nests if nest is not None)


@gpu_form(NativeElementwiseKernel)
def elementwise_form(kernel: NativeElementwiseKernel, arrays: GpuArrays) -> Sources:
    (result,) = arrays.results
    walks = [array_walk(Held.OPERAND, n, view) for n, view in enumerate(arrays.operands)]
    walks.append(array_walk(Held.RESULT, 0, result))
    if result.num_elements == 0:
        return ()
    nest = nest_of(one_operation(kernel.signature), result.dims, walks, arrays.operands)
    return (loop_source(nest, arrays.target),)


@gpu_form(UnwrittenKernel)
def unwritten_form(_: UnwrittenKernel, __: GpuArrays) -> Sources:
    return ()


def loop_source(nest: Nest, target: PtxTarget) -> KernelSource:
    return _Loop(nest, target).source()


def nest_functions(nest: Nest) -> list[str]:
    return [*program_ir(nest.program, "body", INSTRUCTIONS), *starts_functions(nest.stages)]


def elements_together(nest: Nest, target: PtxTarget) -> int:
    """How many neighbours a thread takes: as many as one instruction moves of the narrowest array.

    A small loop is shared out among more threads.
    """
    if any(d == len(nest.sizes) - 1 for d, _ in nest.ranges):
        return 1
    packed = [
        walk.item
        for walk, own in zip(nest.walks, nest.strides, strict=True)
        if not walk.counts and own[-1] == walk.item
    ]
    if not packed:
        return 1
    count = min(_MOST_ELEMENTS, max(1, _WIDEST // min(packed)))
    total = math.prod(nest.sizes)
    while count > 1 and (
        (len(nest.sizes) > 1 and nest.sizes[-1] % count)
        or count * len(nest.walks) > _MOST_HELD
        or total // count < target.multiprocessors * THREADS
    ):
        count //= 2
    return count


class Spans:
    """Of ranges: from and to which index each dimension is walked, and whether an index lies there."""

    def __init__(self, writer: PtxWriter, nest: Nest, starts: Sequence[str]) -> None:
        value = writer.value
        self.writer = writer
        self.spans: dict[int | None, tuple[str, str]] = {}
        for d, each in nest.ranges:
            shift = inside(writer, starts[each.start], str(each.limit))
            begins, ends = (value(f"sub i64 {edge}, {shift}") for edge in (each.first, each.end))
            begin, last = self.spans.get(d, ("0", "1" if d is None else str(nest.sizes[d])))
            self.spans[d] = (
                value(f"call i64 @llvm.smax.i64(i64 {begin}, i64 {begins})"),
                value(f"call i64 @llvm.smin.i64(i64 {last}, i64 {ends})"),
            )

    def holds(self, digits: Sequence[str]) -> str | None:
        """Whether the index counts; None where all do."""
        value, found = self.writer.value, ""
        for d, (begin, end) in self.spans.items():
            at = "0" if d is None else self.writer.to_i64(digits[d])
            for condition in (f"sge i64 {at}, {begin}", f"slt i64 {at}, {end}"):
                one = value(f"icmp {condition}")
                found = value(f"and i1 {found}, {one}") if found else one
        return found or None


class _Loop:
    def __init__(self, nest: Nest, target: PtxTarget) -> None:
        self.nest = nest
        self.count = elements_together(nest, target)
        *outer, inner = nest.sizes
        self.groups = [*outer, inner // self.count]
        total = math.prod(self.groups)
        self.left = inner % self.count
        work = max(total, self.left)
        self.blocks = min(-(-work // THREADS), target.multiprocessors * BLOCKS)
        self.writer = PtxWriter(index=index_type(nest.sizes, nest.walks, nest.strides))

    def source(self) -> KernelSource:
        writer, nest = self.writer, self.nest
        starts = computed(writer, nest.stages, nest.operands)
        bases = moved(writer, nest.walks, starts)
        spans = Spans(writer, nest, starts)
        t = writer.index
        block = writer.to_index(writer.block_number())
        before = writer.value(f"mul nuw nsw {t} {block}, {THREADS}")
        thread = writer.to_index(writer.thread())
        first = writer.value(f"add nuw nsw {t} {before}, {thread}")
        total, step = math.prod(self.groups), self.blocks * THREADS
        if total:
            with writer.strided_loop(first, str(total), str(step)) as number:
                self.group(writer.digits(number, self.groups), bases, spans, self.count)
        if self.left:
            # Of a single dimension, at its end; the first threads take an element each.
            with writer.when(writer.value(f"icmp ult {t} {first}, {self.left}")):
                last = writer.value(f"add nuw nsw {t} {first}, {total * self.count}")
                self.group([last], bases, spans, 1)
        return writer.source("spmd_loop", nest_functions(nest), self.blocks, THREADS)

    def group(self, digits: Sequence[str], bases: Sequence[str], spans: Spans, count: int) -> None:
        with ExitStack() as stack:
            condition = spans.holds(digits)
            if condition is not None:
                stack.enter_context(self.writer.when(condition))
            self.elements(digits, bases, count)

    def elements(self, digits: Sequence[str], bases: Sequence[str], count: int) -> None:
        writer, nest = self.writer, self.nest
        places, pieces = [], []
        for walk, own, base in zip(nest.walks, nest.strides, bases, strict=True):
            way = writer.way(digits, (*own[:-1], own[-1] * count))
            places.append(place_at(writer, walk, base, way))
            pieces.append(piece(walk, own, count) if count > 1 else 1)
        read = [
            load(writer, nest.walks[i], places[i], nest.strides[i][-1], count, pieces[i])
            for i in range(nest.inputs)
        ]
        rows = [body(writer, nest, [own[j] for own in read]) for j in range(count)]
        for number, i in enumerate(range(nest.inputs, len(nest.walks))):
            made = [row[number] for row in rows]
            store(writer, nest.walks[i], places[i], nest.strides[i][-1], made, pieces[i])


def body(writer: PtxWriter, nest: Nest, elements: Sequence[str]) -> list[str]:
    """The program's results for one index."""
    struct = struct_type(nest.program)
    typed = [f"{walk.stored} {x}" for walk, x in zip(nest.walks, elements, strict=False)]
    made = writer.value(f"call {struct} @body({', '.join(typed)})")
    count = len(nest.walks) - nest.inputs
    return [writer.value(f"extractvalue {struct} {made}, {n}") for n in range(count)]
