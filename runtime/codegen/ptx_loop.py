"""Loops over all indices on a GPU: every thread takes some neighbouring elements, then goes on a whole grid further."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from runtime.codegen.ptx_forms import GpuArrays, Sources, gpu_form
from runtime.codegen.ptx_launch import Held, KernelSource, PtxTarget
from runtime.codegen.ptx_nest import Nest, Spans, body, loop_nest, nest_functions, nest_of
from runtime.codegen.ptx_tile import tiled_source
from runtime.codegen.ptx_walk import (
    array_walk,
    computed,
    index_type,
    load,
    moved,
    piece,
    place_at,
    store,
)
from runtime.codegen.ptx_writer import PtxWriter
from runtime.kernels.loop import LoopKernel, PiecesKernel
from runtime.kernels.native_elementwise import NativeElementwiseKernel, one_operation
from runtime.kernels.unwritten import UnwrittenKernel

#: Of a block.
THREADS = 256
#: Blocks for a multiprocessor: of more work the threads take several rounds.
BLOCKS = 32
#: Bytes that one instruction moves, and the most elements that a thread takes at once.
_WIDEST, _MOST_ELEMENTS = 16, 8
#: Elements of all arrays that a thread holds at once, so that registers suffice.
_MOST_HELD = 64


@gpu_form(LoopKernel)
def loop_form(kernel: LoopKernel, arrays: GpuArrays) -> Sources:
    nest = loop_nest(kernel, arrays.operands, arrays.results)
    return () if nest is None else (loop_source(nest, arrays.target),)


@gpu_form(PiecesKernel)
def pieces_form(kernel: PiecesKernel, arrays: GpuArrays) -> Sources:
    return pieces_sources(kernel.pieces, arrays)


def pieces_sources(pieces: Sequence[LoopKernel], arrays: GpuArrays) -> tuple[KernelSource, ...]:
    """One loop after the other."""
    nests = [loop_nest(piece, arrays.operands, arrays.results) for piece in pieces]
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
    return tiled_source(nest, target) or _Loop(nest, target).source()


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
