"""Scatter on a GPU: windows are written to, or combined with, an array at positions that are computed from elements.

The starts of windows are divided into shares by a hash, and each share belongs to some blocks. A thread processes the
same element of all windows of its block's share, in the order of their index vectors. So an element that lies in
several windows is combined in the order of the CPU kernels, in every run. The threads of a block examine the index
vectors in chunks: each thread marks in a byte of shared memory which of its vectors belong to the share, then all
threads process the marked vectors. Sums, minima and the like of 32-bit and 64-bit integers use atomic operations
instead, since their order does not matter. Windows that may overlap in part are processed by a single block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.codegen.elements.combining import element_combining_ir
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.gpu.codegen.array_access import (
    INSTRUCTIONS,
    GpuArrayAccess,
    array_access,
    load,
    store,
)
from runtime.gpu.codegen.copy import copy_source, unless_same
from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.gather import BLOCKS, THREADS, Windows, WindowWriter, windows_of
from runtime.gpu.codegen.launch import ArgumentKind, GpuTarget, KernelSource
from runtime.gpu.codegen.loop import loop_source
from runtime.gpu.codegen.loop_nest import nest_of
from runtime.program.records.gather_scatter import IndexedWindows, ScatterKernel
from runtime.program.records.loop import one_operation
from runtime.program.scalar_program import ElementSignature, Reducer, ScalarProgram
from runtime.program.strides import StridedView
from spmd.device import ReductionKind
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

P = PrimitiveType
#: Threads of the block in a launch of a single block.
MOST_THREADS = 512
#: Index vectors that a thread examines in each chunk. Their marks are the bits of a byte.
MARKS = 8
#: Index vectors of a chunk, whose marks a block holds in shared memory.
CHUNK = THREADS * MARKS
#: Bits of the words in which marks are read.
WORD = 32
#: Largest number of shares, since the blocks of each share examine all index vectors.
MOST_SHARES = 512
#: Odd number near 2^64 divided by the golden ratio, for multiplicative hashing (Knuth, TAOCP volume 3, section 6.4).
_MIX = 0x9E3779B97F4A7C15


@kernel_emitter(ScatterKernel)
def emit_scatter(kernel: ScatterKernel, arrays: GpuArrays) -> Sources:
    """Return the launches of a scatter.

    They copy the operand to the result, which is skipped if in place, or convert it to scratch in the accumulator type;
    combine the updates; and convert scratch to the result.
    """
    number = kernel.windows.array
    source, updates = arrays.operands[number], arrays.operands[kernel.updates]
    source_access = array_access(ArgumentKind.OPERAND, number, source)
    (result,) = arrays.results
    array = array_access(ArgumentKind.RESULT, 0, result)
    before: tuple[KernelSource, ...]
    after: tuple[KernelSource, ...] = ()
    if arrays.scratch:
        (total,) = arrays.scratch
        array = array_access(ArgumentKind.SCRATCH, 0, total)
        before = _converted(source_access, array, total.dims, arrays)
        after = _converted(array, array_access(ArgumentKind.RESULT, 0, result), total.dims, arrays)
    else:
        copy = copy_source(source_access, array, result.dims, arrays.target)
        before = unless_same(copy, number, 0, arrays)
    if updates.num_elements == 0:
        return (*before, *after)
    slices = array_access(ArgumentKind.OPERAND, kernel.updates, updates)
    windows = windows_of(kernel.windows, array, slices, arrays.operands, updates.dims)
    combine = _Scatter(windows, kernel.reduction, arrays.target)
    if _overlap(kernel.windows, updates) and not combine.atomic:
        combine = _InTurn(windows, kernel.reduction, arrays.target)
    return (*before, combine.source(), *after)


def _converted(
    source: GpuArrayAccess, target: GpuArrayAccess, dims: Sequence[int], arrays: GpuArrays
) -> tuple[KernelSource, ...]:
    if 0 in dims:
        return ()
    program = one_operation(ElementSignature(Opcode.CONVERT, (source.kind,), target.kind))
    return (loop_source(nest_of(program, dims, (source, target), arrays.operands), arrays.target),)


def _overlap(windows: IndexedWindows, updates: StridedView) -> bool:
    """Return whether windows with different starts may have common elements.

    They may if there are several windows and these are longer than 1 along an indexed dimension.
    """
    vectors = math.prod(updates.dims[n] for n, _ in windows.batch)
    lengths = {f: updates.dims[n] for n, f in windows.window}
    return vectors > 1 and any(lengths.get(d, 1) > 1 for d, _ in windows.starts)


#: Reduction -> LLVM's names of the atomic operation for signed and for unsigned integers.
_ATOMIC = {
    ReductionKind.SUM: ("add", "add"),
    ReductionKind.MIN: ("min", "umin"),
    ReductionKind.MAX: ("max", "umax"),
    ReductionKind.AND: ("and", "and"),
    ReductionKind.OR: ("or", "or"),
    ReductionKind.XOR: ("xor", "xor"),
}


class _Scatter(WindowWriter):
    def __init__(self, windows: Windows, reduction: Reducer | None, target: GpuTarget) -> None:
        super().__init__(windows)
        self.reduction = reduction
        kind = windows.array.kind
        self.atomic = ""
        if isinstance(reduction, ReductionKind) and kind in (P.S32, P.U32, P.S64, P.U64):
            self.atomic = _ATOMIC.get(reduction, ("", ""))[not kind.is_signed_integer]
        self.count = 1 if self.atomic else windows.vector_elements()
        *outer, last = windows.window.sizes
        self.groups = [*outer, last // self.count]
        self.vectors = math.prod(windows.batch.sizes)
        total = math.prod(self.groups)
        self.across = -(-total // THREADS)
        most = target.multiprocessors * BLOCKS
        if self.atomic:
            self.across = min(self.across, most)
            self.shares = min(self.vectors, max(1, most // self.across))
        else:
            shares = min(self.vectors, MOST_SHARES, max(1, most // self.across))
            self.shares = 1 << (shares.bit_length() - 1)
            self.across = min(self.across, max(1, most // self.shares))

    def source(self) -> KernelSource:
        writer = self.writer
        t, value = writer.index, writer.value
        self.begin()
        block, thread = (writer.to_index(emit()) for emit in (writer.block_number, writer.thread))
        share = value(f"udiv {t} {block}, {self.across}")
        part = value(f"urem {t} {block}, {self.across}")
        before = value(f"mul nuw nsw {t} {part}, {THREADS}")
        first = value(f"add nuw nsw {t} {before}, {thread}")
        total, step = str(math.prod(self.groups)), str(self.across * THREADS)
        if self.atomic:
            with writer.strided_loop(first, total, step) as number:
                window = writer.delinearize(number, self.groups)
                with writer.strided_loop(share, str(self.vectors), str(self.shares)) as vector:
                    self.apart(vector, window)
        else:
            self.in_order(share, first, total, step)
        blocks = self.across * self.shares
        return writer.source("spmd_scatter", self.functions(), blocks, THREADS)

    def functions(self) -> list[str]:
        """Return the functions that compute the starts, and that combine elements."""
        found = super().functions()
        if isinstance(self.reduction, ScalarProgram):
            found += program_ir(self.reduction, "reducer", INSTRUCTIONS)
        elif self.reduction is not None:
            kind = self.windows.slices.kind
            found += element_combining_ir(kind, self.reduction, "", INSTRUCTIONS)
        return found

    def apart(self, vector: str, window: Sequence[str]) -> None:
        """Emit the atomic combination of element ``window`` of the window of index vector ``vector`` with the array."""
        writer, windows = self.writer, self.windows
        batch = writer.delinearize(vector, windows.batch.sizes)
        starts = self.starts(batch)
        with writer.when(self.fits(starts)):
            address = self.moved(self.at("array", batch, window, 1), starts)
            slices = windows.slices
            x = writer.value(
                f"load {slices.stored}, ptr {self.at('slices', batch, window, 1)}, align {slices.item}"
            )
            writer.value(
                f"atomicrmw {self.atomic} ptr {address}, {slices.stored} {x} "
                'syncscope("device") monotonic'
            )

    def in_order(self, share: str, first: str, total: str, step: str) -> None:
        """Emit the combination of the windows of ``share`` with the array, in the order of their index vectors.

        The thread processes the groups of elements ``first``, ``first`` + ``step``, ... below ``total`` of each window.
        """
        writer, t = self.writer, self.writer.index
        marks = writer.shared(THREADS)
        with writer.strided_loop("0", str(self.vectors), str(CHUNK)) as chunk:
            self.mark(marks, chunk, share)
            writer.barrier()
            with writer.strided_loop("0", str(CHUNK // WORD), "1") as word:
                number = word if t == "i32" else writer.value(f"trunc {t} {word} to i32")
                bits = writer.load_shared("i32", marks, WORD // 8, number)
                before = writer.value(f"mul nuw nsw {t} {word}, {WORD}")
                before = writer.value(f"add nuw nsw {t} {chunk}, {before}")
                with writer.each_bit(bits) as bit:
                    vector = writer.value(f"add nuw nsw {t} {before}, {writer.to_index(bit)}")
                    batch = writer.delinearize(vector, self.windows.batch.sizes)
                    starts = self.starts(batch)
                    with writer.strided_loop(first, total, step) as group:
                        self.combine(batch, starts, writer.delinearize(group, self.groups))
            writer.barrier()

    def mark(self, marks: int, chunk: str, share: str) -> None:
        """Emit the store of the thread's marks: which of its index vectors of the chunk belong to ``share``.

        marks: offset of the marks in shared memory. chunk: number of the first index vector of the chunk.
        """
        writer, t = self.writer, self.writer.index
        thread = writer.thread()
        own = writer.value(f"mul nuw nsw {t} {writer.to_index(thread)}, {MARKS}")
        own = writer.value(f"add nuw nsw {t} {chunk}, {own}")
        byte = "0"
        for n in range(MARKS):
            vector, there = own, None
            if n:
                vector = writer.value(f"add nuw nsw {t} {own}, {n}")
            if self.vectors % CHUNK:
                there = writer.value(f"icmp ult {t} {vector}, {self.vectors}")
                vector = writer.value(f"select i1 {there}, {t} {vector}, {t} {self.vectors - 1}")
            batch = writer.delinearize(vector, self.windows.batch.sizes)
            starts = self.starts(batch)
            condition = self.both(self.fits(starts), there)
            if self.shares > 1:
                condition = self.both(condition, self.is_of(share, batch, starts))
            bit = writer.value(f"select i1 {condition}, i8 {1 << n if n < 7 else -128}, i8 0")
            byte = writer.value(f"or i8 {byte}, {bit}")
        writer.store_shared("i8", byte, marks, 1, thread)

    def both(self, a: str, b: str | None) -> str:
        return a if b is None else self.writer.value(f"and i1 {a}, {b}")

    def fits(self, starts: Sequence[str]) -> str:
        """Emit the test that a window that begins at ``starts`` is in bounds (i1). HLO skips other windows."""
        value, fit = self.writer.value, "true"
        for start, (_, limit) in zip(starts, self.windows.components, strict=True):
            fit = self.both(fit, value(f"icmp ule i64 {start}, {limit}"))
        return fit

    def is_of(self, share: str, batch: Sequence[str], starts: Sequence[str]) -> str:
        """Emit the test that a window belongs to ``share`` (i1), by a hash of the offset of its first element."""
        value, writer = self.writer.value, self.writer
        way = writer.to_i64(writer.way(batch, self.windows.batch.array))
        for start, (stride, _) in zip(starts, self.windows.components, strict=True):
            more = value(f"mul i64 {start}, {stride}")
            way = value(f"add i64 {way}, {more}")
        mixed = value(f"mul i64 {way}, {_MIX}")
        high = value(f"lshr i64 {mixed}, 40")
        own = value(f"and i64 {high}, {self.shares - 1}")
        return value(f"icmp eq i64 {own}, {writer.to_i64(share)}")

    def combine(self, batch: Sequence[str], starts: Sequence[str], window: Sequence[str]) -> None:
        """Emit the combination of the group of elements at ``window`` of window ``batch`` with the array."""
        writer, windows = self.writer, self.windows
        array, slices = windows.pieces(self.count)
        steps = windows.window.array[-1], windows.window.slices[-1]
        address = self.moved(self.at("array", batch, window, self.count), starts)
        source = self.at("slices", batch, window, self.count)
        elements = load(writer, windows.slices, source, steps[1], self.count, slices)
        if self.reduction is not None:
            current = load(writer, windows.array, address, steps[0], self.count, array)
            elements = [self.combined(a, b) for a, b in zip(current, elements, strict=True)]
        store(writer, windows.array, address, steps[0], elements, array)

    def combined(self, current: str, update: str) -> str:
        """Emit the combination of an element of the array with an update, and return it.

        A ReductionKind is computed in the wide type, which the array has as well if it is scratch.
        """
        value, slices = self.writer.value, self.windows.slices
        stored, wide = slices.stored, wide_type(slices.kind)
        if isinstance(self.reduction, ScalarProgram):
            struct = struct_type(self.reduction)
            both = value(f"call {struct} @reducer({stored} {current}, {stored} {update})")
            return value(f"extractvalue {struct} {both}, 0")
        same = self.windows.array.kind is slices.kind
        if same:
            current = value(f"call {wide} @widen({stored} {current})")
        update = value(f"call {wide} @widen({stored} {update})")
        total = value(f"call {wide} @combine({wide} {current}, {wide} {update})")
        return value(f"call {stored} @narrow({wide} {total})") if same else total


class _InTurn(_Scatter):
    """Writer of a scatter whose windows may overlap in part: a single block processes one window after another."""

    def source(self) -> KernelSource:
        writer, t = self.writer, self.writer.index
        self.begin()
        thread = writer.to_index(writer.thread())
        total = math.prod(self.groups)
        with writer.strided_loop("0", str(self.vectors), "1") as vector:
            batch = writer.delinearize(vector, self.windows.batch.sizes)
            starts = self.starts(batch)
            end = writer.value(f"select i1 {self.fits(starts)}, {t} {total}, {t} 0")
            with writer.strided_loop(thread, end, str(MOST_THREADS)) as number:
                self.combine(batch, starts, writer.delinearize(number, self.groups))
            writer.barrier()
        functions = self.functions()
        return writer.source("spmd_scatter_in_turn", functions, 1, MOST_THREADS)
