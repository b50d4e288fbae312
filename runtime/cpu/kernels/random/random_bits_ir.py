"""Native code of rng-bit-generator: Threefry-2x32 and Philox-4x32 of counters that follow on one another.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A counter's block does not depend on another's,
so that loops over counters make vectors. Which element takes which number is XLA's, as in spmd/evaluator/rng.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.combine import element_of
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.random_block_ir import RandomBitsVariant, block_function
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.records.random_bits import Algorithm

FUNCTION = "spmd_random_bits"


@record
class RandomBitsRecord(Record):
    """state: address and bytes from word to word; new_state: address, dense. bits: address of dense elements.

    counters: how many are used up. nest: sizes of the loops, see ``_RandomBits``.
    """

    state: Address
    state_step: Word
    new_state: Address
    bits: Address
    counters: Word
    nest: Sequence[Word]


@cache
def random_bits_code(form: RandomBitsVariant) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a RandomBitsRecord."""
    return host_jit().compile(random_bits_ir(form), (FUNCTION,))


def random_bits_ir(form: RandomBitsVariant) -> str:
    return _RandomBits(form).text()


class _RandomBits:
    """Writes the function.

    A block's numbers are neighbours in most cases, and the nest is (whole blocks, elements left for one more).
    Threefry's pairs are put together along a dimension, which may have others within: then the nest is (rows outside,
    pairs in each, whether one more gives its first number alone, elements within), and ``apart`` says so.
    """

    key: Int
    low: Int
    high: Int

    def __init__(self, form: RandomBitsVariant) -> None:
        self.form = form
        module = Module(block_function(form))
        nest = 4 if form.apart else 2
        self.f = FunctionWriter(FUNCTION, RandomBitsRecord, module=module, nest=nest)
        self.stored = element_of(form.kind.numpy).stored
        self.size = form.kind.byte_size
        self.each = form.algorithm.block // (2 if form.kind.bits == 64 else 1)

    def text(self) -> str:
        form, rec = self.form, self.f.record
        state, step, new_state, bits = rec.state, rec.state_step, rec.new_state, rec.bits
        counters = rec.counters
        words = [state.at(step * i).word() for i in range(form.state_length)]
        self.key, self.low = words[0], words[1]
        self.high = words[2] if len(words) > 2 else words[0]
        # The new state goes last: it may lie where the old one does.
        if form.apart:
            self.pairs(bits, *rec.nest)
        else:
            self.neighbours(bits, *rec.nest)
        if form.gives_state:
            after = self.low + counters
            values = [self.key, after]
            if form.algorithm is Algorithm.PHILOX and len(words) > 2:
                values.append(self.carried(after))
            for i, x in enumerate(values):
                new_state.element("i64", i).store(x)
        return self.f.end()

    def carried(self, counter: Int) -> Int:
        """The high word of a counter whose low one is ``counter``, the first one's or more."""
        return self.high + counter.ult(self.low).resized("i64")

    def block(self, number: Int) -> list[Value]:
        """The elements of counter ``number``, counted from the first one."""
        counter = self.low + number
        struct = f"{{ {', '.join([self.stored] * self.each)} }}"
        arguments = (self.key, counter, self.carried(counter))
        return self.f.results(struct, self.each, "block", *arguments)

    def neighbours(self, bits: Pointer, whole: Int, left: Int) -> None:
        f, block = self.f, f"[{self.each} x {self.stored}]"
        with f.unless_zero(whole), f.vector_loop(whole) as k:
            for n, element in enumerate(self.block(k)):
                place = f.append(f"getelementptr {block}, ptr {bits}, i64 {k}, i64 {n}")
                Pointer(f, place).store(element)
        if self.each == 1:
            return
        with f.unless_zero(left):
            last = bits.element(block, whole)
            for n, element in enumerate(self.block(whole)[:-1]):
                with f.when(left.compared("ugt", n)):
                    last.element(self.stored, n).store(element)

    def pairs(self, bits: Pointer, rows: Int, pairs: Int, odd: Int, inner: Int) -> None:
        """Counter (row, pair, i) gives elements (row, 2 pair, i) and (row, 2 pair + 1, i), where there is such."""
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
        second = first.element(self.stored, inner)
        with self.f.vector_loop(inner) as k:
            elements = self.block(counter + k)
            for element, base in zip(elements, (first, second) if both else (first,), strict=False):
                base.element(self.stored, k).store(element)
