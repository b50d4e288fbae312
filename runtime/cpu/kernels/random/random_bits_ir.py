"""Native code of rng-bit-generator: Threefry-2x32 and Philox-4x32 of consecutive counters.

The generators are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The blocks of
different counters are independent, so loops over counters are vectorized. The order of elements is that of XLA, as in
spmd/evaluator/rng.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.combine import element_of
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.random_block_ir import RandomBitsVariant, block_function
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.argument_record import Address, Record, Word, record
from runtime.program.records.random_bits import Algorithm

FUNCTION = "spmd_random_bits"


@record
class RandomBitsRecord(Record):
    """Record of one generation. ``state_step`` is the stride of the state in bytes; the other arrays are dense.

    ``new_state`` is 0 if it is not stored. ``counters`` is the number of counters used, and ``nest`` lists the sizes of
    the loops (see ``_RandomBits``).
    """

    state: Address
    state_step: Word
    new_state: Address
    bits: Address
    counters: Word
    nest: Sequence[Word]


@cache
def random_bits_code(variant: RandomBitsVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a RandomBitsRecord."""
    return host_jit().compile(_RandomBits(variant).text(), (FUNCTION,))


class _RandomBits:
    """Writer of the function.

    If the numbers of a block are adjacent elements, the nest is (full blocks, elements of a last partial block).
    Otherwise (``apart``) the two numbers of Threefry are adjacent along a dimension that is not the innermost one, and
    the nest is (outer rows, pairs in each row, 1 if only the first number of a last pair is used, inner elements).
    """

    key: Int
    low: Int
    high: Int

    def __init__(self, variant: RandomBitsVariant) -> None:
        self.variant = variant
        module = Module(block_function(variant))
        nest = 4 if variant.apart else 2
        self.f = FunctionWriter(FUNCTION, RandomBitsRecord, module=module, nest=nest)
        self.stored = element_of(variant.kind.numpy).stored
        self.size = variant.kind.byte_size
        self.each = variant.algorithm.block // (2 if variant.kind.bits == 64 else 1)

    def text(self) -> str:
        variant, rec = self.variant, self.f.record
        state, step, new_state, bits = rec.state, rec.state_step, rec.new_state, rec.bits
        counters = rec.counters
        numbers = [state.at(step * i).word() for i in range(variant.state_length)]
        self.key, self.low = numbers[0], numbers[1]
        self.high = numbers[2] if len(numbers) > 2 else numbers[0]
        # The new state is stored last: it may overwrite the old one.
        if variant.apart:
            self.pairs(bits, *rec.nest)
        else:
            self.neighbours(bits, *rec.nest)
        if variant.gives_state:
            after = self.low + counters
            values = [self.key, after]
            if variant.algorithm is Algorithm.PHILOX and len(numbers) > 2:
                values.append(self.carried(after))
            for i, x in enumerate(values):
                new_state.element("i64", i).store(x)
        return self.f.end()

    def carried(self, counter: Int) -> Int:
        """Return the high word of the counter whose low word is ``counter``, at most 2^64 - 1 after the first one."""
        return self.high + counter.ult(self.low).resized("i64")

    def block(self, number: Int) -> list[Value]:
        """Return the elements of the counter that comes ``number`` after the first one."""
        counter = self.low + number
        struct = f"{{ {', '.join([self.stored] * self.each)} }}"
        arguments = (self.key, counter, self.carried(counter))
        return self.f.results(struct, self.each, "block", *arguments)

    def neighbours(self, bits: Pointer, blocks: Int, left: Int) -> None:
        """Write the elements of ``blocks`` full blocks, and ``left`` elements of a last one."""
        f, block = self.f, f"[{self.each} x {self.stored}]"
        with f.unless_zero(blocks), f.vector_loop(blocks) as k:
            for n, element in enumerate(self.block(k)):
                pointer = f.append(f"getelementptr {block}, ptr {bits}, i64 {k}, i64 {n}")
                Pointer(f, pointer).store(element)
        if self.each == 1:
            return
        with f.unless_zero(left):
            last = bits.element(block, blocks)
            for n, element in enumerate(self.block(blocks)[:-1]):
                with f.when(left.compared("ugt", n)):
                    last.element(self.stored, n).store(element)

    def pairs(self, bits: Pointer, rows: Int, pairs: Int, odd: Int, inner: Int) -> None:
        """Write elements (row, 2 pair, i) and, if they exist, (row, 2 pair + 1, i) of each counter (row, pair, i)."""
        f = self.f
        every = pairs + odd
        lines = every + pairs
        row_counters = every * inner
        row_bytes = lines * inner * self.size
        pair_bytes = inner * (2 * self.size)
        cursors = {0: Cursor(f.constant(0), row_counters), 1: Cursor(bits, row_bytes)}
        with f.cursor_loop(rows, cursors) as (_, row):
            with f.unless_zero(pairs):
                both = {0: Cursor(row[0], inner), 1: Cursor(row[1], pair_bytes)}
                with f.cursor_loop(pairs, both) as (_, here):
                    self.line(here[0], here[1], inner, both=True)
            with f.unless_zero(odd):
                before = pairs * inner
                last = row[1].at(pairs * pair_bytes)
                self.line(row[0] + before, last, inner, both=False)

    def line(self, counter: Int, first: Pointer, inner: Int, *, both: bool) -> None:
        """Write the elements of ``inner`` counters to the line at ``first``, and, if ``both``, to the line after it."""
        second = first.element(self.stored, inner)
        with self.f.vector_loop(inner) as k:
            elements = self.block(counter + k)
            for element, base in zip(elements, (first, second) if both else (first,), strict=False):
                base.element(self.stored, k).store(element)
