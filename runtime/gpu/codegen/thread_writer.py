"""Writer of the LLVM IR of a GPU kernel: parameters, thread numbers, barriers, exchanges within a warp.

All GPU features are LLVM's ``nvvm`` intrinsics, so that a test can replace them by functions and run the same code on a
CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.values import typed
from runtime.gpu.codegen.launch import BLOCK_NUMBER, WARP, KernelArgument, KernelSource

_SHARED = "ptr addrspace(3)"


class ThreadWriter(FunctionWriter):
    """Writer of one kernel function. ``index`` is the LLVM type of indices and byte offsets: i32 or i64."""

    def __init__(self, index: str = "i32") -> None:
        super().__init__("")
        self.index = index
        self.arguments: list[KernelArgument] = []
        self.shared_bytes = 0
        self.constants: list[str] = []

    def pointer(self, argument: KernelArgument) -> str:
        """Return the parameter of the kernel that is the pointer ``argument``, which is added if it is new."""
        if argument not in self.arguments:
            self.arguments.append(argument)
        return f"%p{self.arguments.index(argument)}"

    def next_word(self, kind: str = "i64") -> Any:
        """Return the next of ``constants`` as a value of type ``kind``.

        CPU kernels read a word of their argument record instead.
        """
        return typed(self, kind, self.constants.pop(0))

    # ---- numbers of thread and block
    def thread(self) -> str:
        """Emit the number of the thread in its block (i32)."""
        return self.value("call i32 @llvm.nvvm.read.ptx.sreg.tid.x()")

    def block_number(self) -> str:
        """Emit the number of the block (i32)."""
        return self.value(BLOCK_NUMBER)

    # ---- barriers, shared memory, exchanges
    def barrier(self) -> None:
        """Emit a barrier of all threads of the block, after which they see one another's earlier writes."""
        self.add("call void @llvm.nvvm.barrier0()")

    def shared(self, size: int, align: int = 16) -> int:
        """Reserve ``size`` bytes of the block's shared memory, aligned to ``align``, and return their offset."""
        start = -(-self.shared_bytes // align) * align
        self.shared_bytes = start + size
        return start

    def shared_address(self, start: int, item: int, number: str) -> str:
        """Emit the address of element ``number`` (i32) of an array in shared memory.

        start: offset of the array in bytes. item: bytes of an element.
        """
        way = self.value(f"mul i32 {number}, {item}")
        at = self.value(f"add i32 {way}, {start}")
        return self.value(f"getelementptr i8, {_SHARED} @shared, i32 {at}")

    def load_shared(self, kind: str, start: int, item: int, number: str) -> str:
        """Emit the load of element ``number`` (i32), of LLVM type ``kind``, of an array in shared memory."""
        address = self.shared_address(start, item, number)
        return self.value(f"load {kind}, {_SHARED} {address}, align {item}")

    def store_shared(self, kind: str, x: str, start: int, item: int, number: str) -> None:
        """Emit the store of ``x``, of LLVM type ``kind``, to element ``number`` (i32) of an array in shared memory."""
        address = self.shared_address(start, item, number)
        self.add(f"store {kind} {x}, {_SHARED} {address}, align {item}")

    def exchanged(self, kind: str, bits: int, x: str, mask: int) -> str:
        """Emit an exchange with the lane whose number is this lane's xor ``mask``, and return the value of ``x`` there.

        kind, bits: LLVM type and size of ``x``. All lanes of the warp must execute it (shfl.sync.bfly).
        """
        width = max(bits, 32)
        own = self.value(f"bitcast {kind} {x} to i{bits}")
        if bits < 32:
            own = self.value(f"zext i{bits} {own} to i32")
        total = ""
        for shift in range(0, width, 32):
            word = own
            if width > 32:
                low = self.value(f"lshr i{width} {own}, {shift}")
                word = self.value(f"trunc i{width} {low} to i32")
            other = self.value(
                f"call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 {word}, i32 {mask}, i32 {WARP - 1})"
            )
            if width > 32:
                wide = self.value(f"zext i32 {other} to i{width}")
                other = self.value(f"shl i{width} {wide}, {shift}")
                other = self.value(f"or i{width} {total}, {other}") if total else other
            total = other
        if bits < 32:
            total = self.value(f"trunc i32 {total} to i{bits}")
        return self.value(f"bitcast i{bits} {total} to {kind}")

    # ---- numbers
    def to_index(self, x: str) -> str:
        """Emit the conversion of ``x``, an i32 that is not negative, to the type of indices."""
        return x if self.index == "i32" else self.value(f"zext i32 {x} to {self.index}")

    def to_i64(self, x: str) -> str:
        """Emit the conversion of ``x``, a constant or a value of the type of indices, to i64."""
        if x.lstrip("-").isdigit() or self.index == "i64":
            return x
        return self.value(f"sext {self.index} {x} to i64")

    def delinearize(self, number: str, sizes: Sequence[int]) -> list[str]:
        """Emit the conversion of the row-major ``number`` of an element of an array of ``sizes`` to its indices."""
        t, found = self.index, []
        for size in reversed(sizes[1:]):
            if size == 1:
                found.append("0")
                continue
            found.append(self.value(f"urem {t} {number}, {size}"))
            number = self.value(f"udiv {t} {number}, {size}")
        return [number, *reversed(found)] if sizes else []

    def way(self, indices: Sequence[str], strides: Sequence[int]) -> str:
        """Emit the sum of ``indices`` times ``strides``, which must fit the type of indices; "0" if it is empty."""
        t, total = self.index, ""
        for index, stride in zip(indices, strides, strict=True):
            if stride == 0 or index == "0":
                continue
            part = index if stride == 1 else self.value(f"mul nsw {t} {index}, {stride}")
            total = self.value(f"add nsw {t} {total}, {part}") if total else part
        return total or "0"

    @contextmanager
    def strided_loop(self, first: str, limit: str, step: str) -> Iterator[str]:
        """Emit a loop over the indices ``first``, ``first`` + ``step``, ... below ``limit``, and yield the index.

        The managed block emits the body. The loop may have no iterations.
        """
        with self._loop(
            self.index,
            first,
            lambda number: f"icmp ult {self.index} {number}, {limit}",
            lambda number: f"add nuw nsw {self.index} {number}, {step}",
        ) as number:
            yield number

    @contextmanager
    def grid_stride_loop(self, count: int, blocks: int, threads: int) -> Iterator[str]:
        """Emit a loop that divides the numbers below ``count`` among all threads of the grid, and yield the number.

        The grid has ``blocks`` blocks of ``threads`` threads. Consecutive threads get consecutive numbers.
        """
        t, block = self.index, self.to_index(self.block_number())
        before = self.value(f"mul nuw nsw {t} {block}, {threads}")
        first = self.value(f"add nuw nsw {t} {before}, {self.to_index(self.thread())}")
        with self.strided_loop(first, str(count), str(blocks * threads)) as number:
            yield number

    @contextmanager
    def each_bit(self, word: str) -> Iterator[str]:
        """Emit a loop over the set bits of ``word`` (i32), the lowest first, and yield the number of the bit (i32)."""
        with self._loop(
            "i32",
            word,
            lambda left: f"icmp ne i32 {left}, 0",
            lambda left: f"and i32 {left}, {self.value(f'sub i32 {left}, 1')}",
        ) as left:
            yield self.value(f"call i32 @llvm.cttz.i32(i32 {left}, i1 true)")

    @contextmanager
    def _loop(
        self, kind: str, first: str, more: Callable[[str], str], following: Callable[[str], str]
    ) -> Iterator[str]:
        """Emit a loop whose variable, of type ``kind``, starts at ``first``, and yield the variable.

        The loop runs while ``more`` is true, and ``following`` computes the next value of the variable. Both functions
        take the name of the variable and return an instruction. The managed block emits the body.
        """
        head, body, end = self.labels("head", "body", "end")
        before = self.block
        self.add(f"br label %{head}")
        self.begin(head)
        self.names += 1
        number = f"%i{self.names}"
        at = len(self._lines)
        self.add(f"br i1 {self.value(more(number))}, label %{body}, label %{end}")
        self.begin(body)
        yield number
        after = self.value(following(number))
        self._lines.insert(
            at, f"  {number} = phi {kind} [ {first}, %{before} ], [ {after}, %{self.block} ]"
        )
        self.add(f"br label %{head}")
        self.begin(end)

    # ---- the end
    def source(
        self, entry: str, functions: Sequence[str], blocks: int, threads: int
    ) -> KernelSource:
        """Return the finished kernel as a launch of ``blocks`` blocks of ``threads`` threads.

        entry: name of the kernel. functions: IR of the functions that it calls; duplicates are removed.
        """
        return KernelSource(
            entry,
            tuple(dict.fromkeys(functions)),
            tuple(self.body()),
            self.shared_bytes,
            blocks,
            threads,
            tuple(self.arguments),
        )
