"""Sort on a GPU: a block sorts the positions of a row, then elements are loaded from there.

The network is bitonic (K. E. Batcher, "Sorting networks and their applications", 1968): of two positions at a distance,
the one whose element comes first goes first. Equal elements keep their order, so the order is total, and every run
gives the same result. Positions lie in shared memory, those of longer rows in the workspace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.gpu.codegen.array_access import (
    INSTRUCTIONS,
    GpuWalk,
    array_walk,
    begun,
    index_type,
    place_at,
)
from runtime.gpu.codegen.emitters import GpuArrays, Sources, gpu_form
from runtime.gpu.codegen.launch import WARP, Held, KernelSource, PtxArgument
from runtime.gpu.codegen.thread_writer import PtxWriter
from runtime.program.records.sort import SortKernel

#: Most threads of a block, blocks per multiprocessor; bytes of a position.
_MOST_THREADS, _BLOCKS, _PLACE = 512, 4, 4
#: Largest row: positions have 32 bits, and one block is slow on longer rows.
_MOST = 1 << 22


@gpu_form(SortKernel)
def sort_form(kernel: SortKernel, arrays: GpuArrays) -> Sources:
    return None if kernel.size > _MOST else (_Sort(kernel, arrays).source(),)


class _Sort:
    def __init__(self, kernel: SortKernel, arrays: GpuArrays) -> None:
        self.kernel, self.arrays = kernel, arrays
        self.sources = [array_walk(Held.OPERAND, n, x) for n, x in enumerate(arrays.operands)]
        self.targets = [array_walk(Held.RESULT, n, x) for n, x in enumerate(arrays.results)]
        dims = arrays.operands[0].dims
        self.others = [d for d in range(len(dims)) if d != kernel.axis]
        self.row_sizes = [dims[d] for d in self.others]
        self.rows = math.prod(self.row_sizes)
        self.length = 1 << max(1, (kernel.size - 1).bit_length())
        self.threads = max(WARP, min(_MOST_THREADS, self.length // 2))
        self.blocks = min(self.rows, arrays.target.multiprocessors * _BLOCKS)
        every = [*self.sources, *self.targets]
        sizes = [
            max(x.dims[d] for x in (*arrays.operands, *arrays.results)) for d in range(len(dims))
        ]
        wide = index_type(sizes, every, [walk.strides for walk in every])
        self.writer = PtxWriter(index=wide if self.rows * self.length < 1 << 30 else "i64")
        self.in_shared = self.length * _PLACE <= arrays.target.shared_bytes

    def source(self) -> KernelSource:
        writer = self.writer
        value = writer.value
        self.bases = [begun(writer, walk) for walk in (*self.sources, *self.targets)]
        self.thread, block = writer.thread(), writer.block_number()
        workspace = 0
        if self.in_shared:
            self.start = writer.shared(self.length * _PLACE)
        else:
            workspace = self.blocks * self.length * _PLACE
            pointer = writer.pointer(PtxArgument(Held.WORKSPACE))
            wide = value(f"zext i32 {block} to i64")
            way = value(f"mul i64 {wide}, {self.length * _PLACE}")
            self.places = value(f"getelementptr i8, ptr {pointer}, i64 {way}")
        with writer.strided_loop(writer.to_index(block), str(self.rows), str(self.blocks)) as row:
            digits = writer.digits(row, self.row_sizes) if self.row_sizes else []
            self.at = [
                place_at(
                    writer, walk, base, writer.way(digits, [walk.strides[d] for d in self.others])
                )
                for walk, base in zip((*self.sources, *self.targets), self.bases, strict=True)
            ]
            self.every(self.length, self.begin)
            self.sort()
            self.every(self.kernel.count, self.fetch)
            writer.barrier()
        functions = program_ir(self.kernel.comparator, "before", INSTRUCTIONS)
        made = writer.source("spmd_sort", functions, self.blocks, self.threads)
        return replace(made, workspace_bytes=workspace)

    def every(self, count: int, what: Callable[[str], None]) -> None:
        """Emit ``what`` for each number below ``count``, distributed over the block's threads, then a barrier."""
        writer, t = self.writer, self.writer.index
        first = writer.to_index(self.thread)
        with writer.strided_loop(first, str(count), str(self.threads)) as number:
            narrow = number if t == "i32" else writer.value(f"trunc i64 {number} to i32")
            what(narrow)
        writer.barrier()

    def begin(self, number: str) -> None:
        self.put(number, number)

    # ---- places (i32)
    def put(self, number: str, place: str) -> None:
        if self.in_shared:
            self.writer.store_shared("i32", place, self.start, _PLACE, number)
        else:
            self.writer.add(f"store i32 {place}, ptr {self.slot(number)}, align {_PLACE}")

    def get(self, number: str) -> str:
        if self.in_shared:
            return self.writer.load_shared("i32", self.start, _PLACE, number)
        return self.writer.value(f"load i32, ptr {self.slot(number)}, align {_PLACE}")

    def slot(self, number: str) -> str:
        wide = self.writer.value(f"zext i32 {number} to i64")
        return self.writer.value(f"getelementptr i32, ptr {self.places}, i64 {wide}")

    # ---- the network
    def sort(self) -> None:
        """Emit the network: in each level, runs twice as long, whose halves are sorted in opposite directions."""
        writer, value = self.writer, self.writer.value
        steps = self.length.bit_length() - 1
        t = writer.index
        with writer.strided_loop("1", str(steps + 1), "1") as level:
            narrow = level if t == "i32" else value(f"trunc i64 {level} to i32")
            run = value(f"shl i32 1, {narrow}")
            with writer.strided_loop("0", level, "1") as part:
                done = part if t == "i32" else value(f"trunc i64 {part} to i32")
                less = value(f"sub i32 {narrow}, {done}")
                shift = value(f"sub i32 {less}, 1")
                distance = value(f"shl i32 1, {shift}")
                self.every(
                    self.length // 2,
                    lambda number: self.exchange(number, run, distance, shift),
                )

    def exchange(self, number: str, run: str, distance: str, shift: str) -> None:
        """Emit the exchange of the two positions of pair ``number``, in the order of their run."""
        writer, value = self.writer, self.writer.value
        high = value(f"lshr i32 {number}, {shift}")
        up = value(f"shl i32 {high}, {shift}")
        twice = value(f"shl i32 {up}, 1")
        low = value(f"sub i32 {number}, {up}")
        first = value(f"or i32 {twice}, {low}")
        second = value(f"add i32 {first}, {distance}")
        a, b = self.get(first), self.get(second)
        turned = value(f"and i32 {first}, {run}")
        backwards = value(f"icmp ne i32 {turned}, 0")
        # Wanted first and actual first: they are exchanged if they differ.
        one = value(f"select i1 {backwards}, i32 {b}, i32 {a}")
        other = value(f"select i1 {backwards}, i32 {a}, i32 {b}")
        with writer.when(self.precedes(other, one)):
            self.put(first, b)
            self.put(second, a)

    def precedes(self, a: str, b: str) -> str:
        """Emit whether the element at ``a`` comes before the one at ``b``; positions beyond the row come last."""
        value = self.writer.value
        size = self.kernel.size
        last = size - 1
        xs, ys = (
            [
                self.element(walk, at, value(f"call i32 @llvm.umin.i32(i32 {place}, i32 {last})"))
                for walk, at in zip(self.sources, self.at, strict=False)
            ]
            for place in (a, b)
        )
        sooner = self.compared(xs, ys)
        later = self.compared(ys, xs)
        stood = value(f"icmp ult i32 {a}, {b}")
        equal = value(f"select i1 {later}, i1 false, i1 {stood}")
        found = value(f"select i1 {sooner}, i1 true, i1 {equal}")
        if self.length == size:
            return found
        a_in, b_in = (value(f"icmp ult i32 {place}, {size}") for place in (a, b))
        both = value(f"and i1 {a_in}, {b_in}")
        return value(f"select i1 {both}, i1 {found}, i1 {stood}")

    def compared(self, xs: Sequence[str], ys: Sequence[str]) -> str:
        value, program = self.writer.value, self.kernel.comparator
        struct = struct_type(program)
        pairs = [x for pair in zip(xs, ys, strict=True) for x in pair]
        typed = [
            f"{stored_type(kind)} {x}" for kind, x in zip(program.parameters, pairs, strict=True)
        ]
        made = value(f"call {struct} @before({', '.join(typed)})")
        byte = value(f"extractvalue {struct} {made}, 0")
        return value(f"icmp ne i8 {byte}, 0")

    def element(self, walk: GpuWalk, row: str, place: str) -> str:
        at = self.along(walk, row, place)
        return self.writer.value(f"load {walk.stored}, ptr {at}, align {walk.item}")

    def along(self, walk: GpuWalk, row: str, place: str) -> str:
        value = self.writer.value
        wide = value(f"zext i32 {place} to i64")
        way = value(f"mul i64 {wide}, {walk.strides[self.kernel.axis]}")
        return value(f"getelementptr i8, ptr {row}, i64 {way}")

    def fetch(self, number: str) -> None:
        """Emit the copy of element ``number`` of each result."""
        writer, place = self.writer, self.get(number)
        own = [
            self.element(walk, at, place) for walk, at in zip(self.sources, self.at, strict=False)
        ]
        if self.kernel.with_indices:
            own.append(place)
        for walk, at, x in zip(self.targets, self.at[len(self.sources) :], own, strict=True):
            writer.add(
                f"store {walk.stored} {x}, ptr {self.along(walk, at, number)}, align {walk.item}"
            )
