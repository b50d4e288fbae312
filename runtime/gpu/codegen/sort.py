"""Sort on a GPU: a block sorts the positions of the elements of a row, then copies the elements in that order.

The sorting network is bitonic (K. E. Batcher, "Sorting networks and their applications", 1968). Equal elements
are ordered by their positions, so the sort is stable, and every run gives the same result. Positions are stored in
shared memory or, for long rows, in the workspace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.gpu.codegen.array_access import (
    INSTRUCTIONS,
    GpuArrayAccess,
    address_at,
    array_access,
    begun,
    index_type,
)
from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.launch import WARP, ArgumentKind, KernelArgument, KernelSource
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records.sort import SortKernel

#: Most threads of a block, blocks per multiprocessor, and bytes of a position.
_MOST_THREADS, _BLOCKS, _POSITION_BYTES = 512, 4, 4
#: Longest row that is sorted on the GPU: positions have 32 bits, and one block is slow on longer rows.
_MOST = 1 << 22


@kernel_emitter(SortKernel)
def emit_sort(kernel: SortKernel, arrays: GpuArrays) -> Sources:
    """Return the launch of a sort; None if its rows have more than _MOST elements."""
    return None if kernel.size > _MOST else (_Sort(kernel, arrays).source(),)


class _Sort:
    def __init__(self, kernel: SortKernel, arrays: GpuArrays) -> None:
        self.kernel, self.arrays = kernel, arrays
        self.sources = [
            array_access(ArgumentKind.OPERAND, n, x) for n, x in enumerate(arrays.operands)
        ]
        self.targets = [
            array_access(ArgumentKind.RESULT, n, x) for n, x in enumerate(arrays.results)
        ]
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
        wide = index_type(sizes, every, [access.strides for access in every])
        self.writer = ThreadWriter(index=wide if self.rows * self.length < 1 << 30 else "i64")
        self.in_shared = self.length * _POSITION_BYTES <= arrays.target.shared_bytes

    def source(self) -> KernelSource:
        writer = self.writer
        value = writer.value
        self.bases = [begun(writer, access) for access in (*self.sources, *self.targets)]
        self.thread, block = writer.thread(), writer.block_number()
        workspace = 0
        if self.in_shared:
            self.start = writer.shared(self.length * _POSITION_BYTES)
        else:
            workspace = self.blocks * self.length * _POSITION_BYTES
            pointer = writer.pointer(KernelArgument(ArgumentKind.WORKSPACE))
            wide = value(f"zext i32 {block} to i64")
            way = value(f"mul i64 {wide}, {self.length * _POSITION_BYTES}")
            self.positions = value(f"getelementptr i8, ptr {pointer}, i64 {way}")
        with writer.strided_loop(writer.to_index(block), str(self.rows), str(self.blocks)) as row:
            indices = writer.delinearize(row, self.row_sizes) if self.row_sizes else []
            self.at = [
                address_at(
                    writer,
                    access,
                    base,
                    writer.way(indices, [access.strides[d] for d in self.others]),
                )
                for access, base in zip((*self.sources, *self.targets), self.bases, strict=True)
            ]
            self.every(self.length, self.begin)
            self.sort()
            self.every(self.kernel.count, self.fetch)
            writer.barrier()
        functions = program_ir(self.kernel.comparator, "before", INSTRUCTIONS)
        made = writer.source("spmd_sort", functions, self.blocks, self.threads)
        return replace(made, workspace_bytes=workspace)

    def every(self, count: int, what: Callable[[str], None]) -> None:
        """Emit a loop over the numbers below ``count``, divided among the threads of the block, and then a barrier.

        what: emits the body of the loop for a number (i32).
        """
        writer, t = self.writer, self.writer.index
        first = writer.to_index(self.thread)
        with writer.strided_loop(first, str(count), str(self.threads)) as number:
            narrow = number if t == "i32" else writer.value(f"trunc i64 {number} to i32")
            what(narrow)
        writer.barrier()

    def begin(self, number: str) -> None:
        self.put(number, number)

    # ---- positions (i32)
    def put(self, number: str, position: str) -> None:
        if self.in_shared:
            self.writer.store_shared("i32", position, self.start, _POSITION_BYTES, number)
        else:
            self.writer.add(
                f"store i32 {position}, ptr {self.position_address(number)}, align {_POSITION_BYTES}"
            )

    def get(self, number: str) -> str:
        if self.in_shared:
            return self.writer.load_shared("i32", self.start, _POSITION_BYTES, number)
        return self.writer.value(
            f"load i32, ptr {self.position_address(number)}, align {_POSITION_BYTES}"
        )

    def position_address(self, number: str) -> str:
        wide = self.writer.value(f"zext i32 {number} to i64")
        return self.writer.value(f"getelementptr i32, ptr {self.positions}, i64 {wide}")

    # ---- the network
    def sort(self) -> None:
        """Emit the sorting network. Each level merges runs whose halves are sorted in opposite directions.

        The runs of a level are twice as long as those of the level before.
        """
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
        """Emit the comparison and conditional exchange of pair ``number`` of positions (i32).

        run: length of the sorted runs, which determines the direction. distance: distance of the two positions, which
        is 2 to the power ``shift``.
        """
        writer, value = self.writer, self.writer.value
        high = value(f"lshr i32 {number}, {shift}")
        up = value(f"shl i32 {high}, {shift}")
        twice = value(f"shl i32 {up}, 1")
        low = value(f"sub i32 {number}, {up}")
        first = value(f"or i32 {twice}, {low}")
        second = value(f"add i32 {first}, {distance}")
        a, b = self.get(first), self.get(second)
        direction = value(f"and i32 {first}, {run}")
        backwards = value(f"icmp ne i32 {direction}, 0")
        # ``one`` must precede ``other`` for the pair to be in order; otherwise they are exchanged.
        one = value(f"select i1 {backwards}, i32 {b}, i32 {a}")
        other = value(f"select i1 {backwards}, i32 {a}, i32 {b}")
        with writer.when(self.precedes(other, one)):
            self.put(first, b)
            self.put(second, a)

    def precedes(self, a: str, b: str) -> str:
        """Emit the test that the element at position ``a`` comes before the one at ``b`` (i1).

        Positions beyond the row, which fill it up to a power of two, come last.
        """
        value = self.writer.value
        size = self.kernel.size
        last = size - 1
        xs, ys = (
            [
                self.element(
                    access, at, value(f"call i32 @llvm.umin.i32(i32 {position}, i32 {last})")
                )
                for access, at in zip(self.sources, self.at, strict=False)
            ]
            for position in (a, b)
        )
        sooner = self.compared(xs, ys)
        later = self.compared(ys, xs)
        stood = value(f"icmp ult i32 {a}, {b}")
        equal = value(f"select i1 {later}, i1 false, i1 {stood}")
        found = value(f"select i1 {sooner}, i1 true, i1 {equal}")
        if self.length == size:
            return found
        a_in, b_in = (value(f"icmp ult i32 {position}, {size}") for position in (a, b))
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

    def element(self, access: GpuArrayAccess, row: str, position: str) -> str:
        at = self.along(access, row, position)
        return self.writer.value(f"load {access.stored}, ptr {at}, align {access.item}")

    def along(self, access: GpuArrayAccess, row: str, position: str) -> str:
        value = self.writer.value
        wide = value(f"zext i32 {position} to i64")
        way = value(f"mul i64 {wide}, {access.strides[self.kernel.axis]}")
        return value(f"getelementptr i8, ptr {row}, i64 {way}")

    def fetch(self, number: str) -> None:
        """Emit the store of element ``number`` of each result, which is loaded from its position in the operand."""
        writer, position = self.writer, self.get(number)
        own = [
            self.element(access, at, position)
            for access, at in zip(self.sources, self.at, strict=False)
        ]
        if self.kernel.with_indices:
            own.append(position)
        for access, at, x in zip(self.targets, self.at[len(self.sources) :], own, strict=True):
            writer.add(
                f"store {access.stored} {x}, ptr {self.along(access, at, number)}, align {access.item}"
            )
