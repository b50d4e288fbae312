"""Random bits on a GPU: each thread computes the random numbers of one value of the counter at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.codegen.ir.combine import element_of
from runtime.codegen.ir.random_block_ir import RandomBitsVariant, block_function
from runtime.gpu.codegen.array_access import array_access, begun, index_type, store
from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.launch import ALIGNMENT, WARP, ArgumentKind, KernelSource
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records.random_bits import Algorithm, RandomBitsKernel, split_dimension

#: Threads of a block, and blocks per multiprocessor.
THREADS, BLOCKS = 256, 32


@kernel_emitter(RandomBitsKernel)
def emit_random_bits(kernel: RandomBitsKernel, arrays: GpuArrays) -> Sources:
    """Return the launch that writes the random bits and, if the state is a result, one that writes the new state.

    The new state has its own launch, since it may overwrite the old state, which all threads of the first launch read.
    """
    variant = RandomBitsVariant(
        kernel.algorithm, kernel.kind, arrays.operands[0].dims[0], len(arrays.results) > 1
    )
    bits = _RandomBits(variant, arrays)
    numbers = (bits.source(),) if bits.size else ()
    return (
        (*numbers, _RandomBits(variant, arrays).state_source()) if variant.gives_state else numbers
    )


class _RandomBits:
    def __init__(self, variant: RandomBitsVariant, arrays: GpuArrays) -> None:
        self.variant, self.arrays = variant, arrays
        self.bits = arrays.results[-1]
        self.size = self.bits.num_elements
        self.access = array_access(ArgumentKind.RESULT, len(arrays.results) - 1, self.bits)
        self.stored = element_of(variant.kind.numpy).stored
        self.each = variant.algorithm.block // (2 if variant.kind.bits == 64 else 1)
        self.rows, self.lines, self.inner = 1, self.size, 1
        self.pairs = variant.algorithm is Algorithm.THREEFRY and variant.kind.bits < 64
        if self.pairs:
            self.rows, self.lines, self.inner = split_dimension(self.bits.dims)
        self.apart = self.pairs and (self.inner > 1 or (self.rows > 1 and self.lines % 2 > 0))
        self.counters = self.rows * -(-self.lines // self.each) * self.inner
        self.writer = ThreadWriter(
            index=index_type((2 * self.size,), (self.access,), ((self.access.item,),))
        )

    def source(self) -> KernelSource:
        writer = self.writer
        self.read_state()
        target = begun(writer, self.access)
        blocks = min(-(-self.counters // THREADS), self.arrays.target.multiprocessors * BLOCKS)
        with writer.grid_stride_loop(self.counters, blocks, THREADS) as number:
            elements = self.block(number)
            if self.apart:
                self.write_pair(number, elements, target)
            else:
                self.write(number, elements, target)
        return writer.source("spmd_random_bits", [block_function(self.variant)], blocks, THREADS)

    def read_state(self) -> None:
        writer, (state,) = self.writer, self.arrays.operands
        loaded = []
        base = begun(writer, array_access(ArgumentKind.OPERAND, 0, state))
        for i in range(self.variant.state_length):
            address = writer.value(f"getelementptr i8, ptr {base}, i64 {i * state.strides[0]}")
            loaded.append(writer.value(f"load i64, ptr {address}, align 8"))
        self.key, self.low = loaded[0], loaded[1]
        self.high = loaded[2] if len(loaded) > 2 else loaded[0]
        self.state_values = loaded

    def carried(self, counter: str) -> str:
        """Emit the high word of the counter with low word ``counter``: a wrap-around of the low word adds 1."""
        wrapped = self.writer.value(f"icmp ult i64 {counter}, {self.low}")
        carry = self.writer.value(f"zext i1 {wrapped} to i64")
        return self.writer.value(f"add i64 {self.high}, {carry}")

    def block(self, number: str) -> list[str]:
        """Emit the call that computes the random numbers of counter ``number`` from the state's on; return them."""
        value = self.writer.value
        counter = value(f"add i64 {self.low}, {self.writer.to_i64(number)}")
        struct = f"{{ {', '.join([self.stored] * self.each)} }}"
        made = value(
            f"call {struct} @block(i64 {self.key}, i64 {counter}, i64 {self.carried(counter)})"
        )
        return [value(f"extractvalue {struct} {made}, {n}") for n in range(self.each)]

    def write(self, number: str, elements: Sequence[str], target: str) -> None:
        """Emit stores of ``elements`` to contiguous elements. The last counter may have more numbers than elements."""
        writer, t, item = self.writer, self.writer.index, self.access.item
        first = writer.value(f"mul nuw nsw {t} {number}, {self.each}")
        way = writer.to_i64(writer.way([first], [item]))
        address = writer.value(f"getelementptr i8, ptr {target}, i64 {way}")
        piece = max(1, math.gcd(ALIGNMENT, self.access.start, self.each * item) // item)
        left = self.size % self.each
        if not left:
            store(writer, self.access, address, item, elements, piece)
            return
        last = self.size // self.each
        with writer.when(writer.value(f"icmp ult {t} {number}, {last}")):
            store(writer, self.access, address, item, elements, piece)
        with writer.when(writer.value(f"icmp eq {t} {number}, {last}")):
            store(writer, self.access, address, item, elements[:left], 1)

    def write_pair(self, number: str, elements: Sequence[str], target: str) -> None:
        """Emit stores of two elements to (row, 2 * pair, i) and, if that exists, (row, 2 * pair + 1, i)."""
        writer, t, item = self.writer, self.writer.index, self.access.item
        every = -(-self.lines // 2)
        row, pair, i = writer.delinearize(number, [self.rows, every, self.inner])
        strides = (self.lines * self.inner, 2 * self.inner, 1)
        first = writer.way([row, pair, i], [stride * item for stride in strides])
        address = writer.value(f"getelementptr i8, ptr {target}, i64 {writer.to_i64(first)}")
        store(writer, self.access, address, item, elements[:1], 1)
        second = writer.value(f"getelementptr i8, ptr {address}, i64 {self.inner * item}")
        if self.lines % 2:
            with writer.when(writer.value(f"icmp ult {t} {pair}, {self.lines // 2}")):
                store(writer, self.access, second, item, elements[1:], 1)
        else:
            store(writer, self.access, second, item, elements[1:], 1)

    def state_source(self) -> KernelSource:
        """Return the launch in which one thread advances the state by the number of counters used."""
        writer, state = self.writer, self.arrays.results[0]
        self.read_state()
        after = writer.value(f"add i64 {self.low}, {self.counters}")
        values = [self.key, after]
        if self.variant.algorithm is Algorithm.PHILOX and len(self.state_values) > 2:
            values.append(self.carried(after))
        target = begun(writer, array_access(ArgumentKind.RESULT, 0, state))
        with writer.when(writer.value(f"icmp eq i32 {writer.thread()}, 0")):
            for i, x in enumerate(values):
                address = writer.value(f"getelementptr i8, ptr {target}, i64 {8 * i}")
                writer.add(f"store i64 {x}, ptr {address}, align 8")
        return writer.source("spmd_random_state", [], 1, WARP)
