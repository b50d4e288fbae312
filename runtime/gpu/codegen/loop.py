"""Elementwise loops on a GPU: every thread processes some groups of contiguous elements.

The grid has a thread for each group or few groups. On an H200 that was 4 to 6 % faster than a grid of 32 blocks per
multiprocessor with a grid-stride loop (benchmarks/results/gpu_h200).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from runtime.gpu.codegen.array_access import (
    address_at,
    computed,
    index_type,
    load,
    moved,
    piece,
    store,
)
from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.horizontal import merged
from runtime.gpu.codegen.launch import RESIDENT_THREADS, GpuTarget, KernelSource
from runtime.gpu.codegen.loop_nest import Nest, Spans, body, loop_nest, nest_functions
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.gpu.codegen.tiled_loop import tiled_source
from runtime.program.records.copy import UninitializedKernel
from runtime.program.records.loop import LoopKernel, PiecesKernel

#: Threads of a block.
THREADS = 256
#: Most bytes that one load or store instruction moves, and most elements of an array that a thread processes at once.
_WIDEST, _MOST_ELEMENTS = 16, 8
#: Most elements of all arrays that a thread holds in registers.
_MOST_LIVE = 64
#: A thread loads several groups before it computes, until this many bytes of loads are in flight. It loads two if they
#: have just as many, since groups share most of the arithmetic of addresses. The other two numbers are the most groups
#: that it loads so, and the most steps of the program in the unrolled code.
_BYTES_READ, _MOST_GROUPS, _MOST_STEPS = 128, 4, 512


@kernel_emitter(LoopKernel)
def emit_loop(kernel: LoopKernel, arrays: GpuArrays) -> Sources:
    """Return the launch of a loop, or no launch if it has no indices."""
    nest = loop_nest(kernel, arrays.operands, arrays.results)
    return () if nest is None else (loop_source(nest, arrays.target),)


@kernel_emitter(PiecesKernel)
def emit_pieces(kernel: PiecesKernel, arrays: GpuArrays) -> Sources:
    """Return one launch for all loops, or no launch if they have no indices."""
    return pieces_sources(kernel.pieces, arrays)


def pieces_sources(pieces: Sequence[LoopKernel], arrays: GpuArrays) -> tuple[KernelSource, ...]:
    """Return as few launches as possible for ``pieces``, which write different elements."""
    nests = [loop_nest(piece, arrays.operands, arrays.results) for piece in pieces]
    return merged([loop_source(nest, arrays.target) for nest in nests if nest is not None])


@kernel_emitter(UninitializedKernel)
def emit_uninitialized(_: UninitializedKernel, __: GpuArrays) -> Sources:
    """Return no launch, since the content of the result is undefined."""
    return ()


def loop_source(nest: Nest, target: GpuTarget) -> KernelSource:
    """Return the launch of a loop nest: with transposed tiles if these help, else a thread for each group."""
    return tiled_source(nest, target) or _Loop(nest, target).source()


def elements_per_thread(nest: Nest, target: GpuTarget) -> int:
    """Return how many contiguous elements a thread processes at once.

    It is the number that one instruction moves of the array with the smallest elements, limited by registers and by the
    innermost size. A small loop gets fewer elements per thread, so that all multiprocessors have work.
    """
    if any(d == len(nest.sizes) - 1 for d, _ in nest.ranges):
        return 1
    packed = [
        access.item
        for access, own in zip(nest.accesses, nest.strides, strict=True)
        if not access.counts and own[-1] == access.item
    ]
    if not packed:
        return 1
    count = min(_MOST_ELEMENTS, max(1, _WIDEST // min(packed)))
    total = math.prod(nest.sizes)
    while count > 1 and (
        (len(nest.sizes) > 1 and nest.sizes[-1] % count)
        or count * len(nest.accesses) > _MOST_LIVE
        or total // count < target.multiprocessors * THREADS
    ):
        count //= 2
    return count


def groups_per_thread(nest: Nest, count: int, target: GpuTarget) -> int:
    """Return how many groups of ``count`` elements a thread loads before it computes, to have enough loads in flight.

    The number is limited by registers, and by the number of threads that fill the GPU. A broadcast operand, such as a
    bias, does not count, since it stays in the cache.
    """
    if nest.ranges:
        return 1
    bytes_read = sum(
        count * access.item
        for access, own in zip(nest.accesses[: nest.inputs], nest.strides, strict=False)
        if not access.counts and all(own)
    )
    groups = math.prod(nest.sizes) // count
    unrolled = 1
    while (
        unrolled < _MOST_GROUPS
        and 2 * unrolled * bytes_read < _BYTES_READ + (unrolled == 1)
        and 2 * unrolled * count * len(nest.accesses) <= _MOST_LIVE
        and 2 * unrolled * count * len(nest.program.steps) <= _MOST_STEPS
        and groups // (2 * unrolled) >= target.multiprocessors * RESIDENT_THREADS
    ):
        unrolled *= 2
    return unrolled


class _Loop:
    def __init__(self, nest: Nest, target: GpuTarget) -> None:
        self.nest = nest
        self.count = elements_per_thread(nest, target)
        self.unrolled = groups_per_thread(nest, self.count, target)
        *outer, inner = nest.sizes
        self.groups = [*outer, inner // self.count]
        self.left = inner % self.count
        work = max(math.prod(self.groups), self.left)
        self.tile = THREADS * self.unrolled
        self.blocks = -(-work // self.tile)
        self.writer = ThreadWriter(index=index_type(nest.sizes, nest.accesses, nest.strides))

    def source(self) -> KernelSource:
        writer, nest = self.writer, self.nest
        starts = computed(writer, nest.stages, nest.operands)
        self.bases = moved(writer, nest.accesses, starts)
        self.spans = Spans(writer, nest, starts)
        t = writer.index
        block = writer.to_index(writer.block_number())
        before = writer.value(f"mul nuw nsw {t} {block}, {self.tile}")
        thread = writer.to_index(writer.thread())
        first = writer.value(f"add nuw nsw {t} {before}, {thread}")
        total = math.prod(self.groups)
        if total:
            with writer.when(writer.value(f"icmp ult {t} {first}, {total}")):
                self.tile_from(first, total)
        if self.left:
            # The last elements of a single dimension, which fill no group: the first threads process
            # one each.
            with writer.when(writer.value(f"icmp ult {t} {first}, {self.left}")):
                last = writer.value(f"add nuw nsw {t} {first}, {total * self.count}")
                self.elements([[last]], 1)
        return writer.source("spmd_loop", nest_functions(nest), self.blocks, THREADS)

    def tile_from(self, first: str, total: int) -> None:
        """Emit the groups of a thread, the first of which is ``first`` of ``total``; they are THREADS groups apart."""
        writer, t = self.writer, self.writer.index
        if self.unrolled == 1:
            self.group(first)
            return
        numbers = [first]
        for n in range(1, self.unrolled):
            numbers.append(writer.value(f"add nuw nsw {t} {first}, {n * THREADS}"))
        is_full = writer.value(f"icmp ult {t} {numbers[-1]}, {total}")
        with writer.when(is_full):
            self.elements([writer.delinearize(x, self.groups) for x in numbers], self.count)
        if total % self.tile:
            part = writer.value(f"select i1 {is_full}, {t} 0, {t} {total}")
            with writer.strided_loop(first, part, str(THREADS)) as number:
                self.group(number)

    def group(self, number: str) -> None:
        indices = self.writer.delinearize(number, self.groups)
        with ExitStack() as stack:
            condition = self.spans.holds(indices)
            if condition is not None:
                stack.enter_context(self.writer.when(condition))
            self.elements([indices], self.count)

    def elements(self, groups: Sequence[Sequence[str]], count: int) -> None:
        """Emit the program for ``groups`` of ``count`` elements: all loads first, then computations and stores.

        The last index of a group is in units of ``count`` elements.
        """
        writer, nest = self.writer, self.nest
        pieces = [
            piece(access, own, count) if count > 1 else 1
            for access, own in zip(nest.accesses, nest.strides, strict=True)
        ]
        addresses = [
            [
                address_at(writer, access, base, writer.way(indices, (*own[:-1], own[-1] * count)))
                for access, own, base in zip(nest.accesses, nest.strides, self.bases, strict=True)
            ]
            for indices in groups
        ]
        read = [
            [
                load(writer, nest.accesses[i], at[i], nest.strides[i][-1], count, pieces[i])
                for i in range(nest.inputs)
            ]
            for at in addresses
        ]
        for at, elements in zip(addresses, read, strict=True):
            rows = [body(writer, nest, [own[j] for own in elements]) for j in range(count)]
            for number, i in enumerate(range(nest.inputs, len(nest.accesses))):
                made = [row[number] for row in rows]
                store(writer, nest.accesses[i], at[i], nest.strides[i][-1], made, pieces[i])
