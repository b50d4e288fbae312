"""Native code of rng-bit-generator: Threefry-2x32 and Philox-4x32 of counters that follow on one another.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A counter's block does not depend on another's,
so that loops over counters make vectors. Which element takes which number is XLA's, as in spmd/evaluator/rng.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.combine import element_of
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.ir.random_block_ir import RandomBitsForm, block_function
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.records.random_bits import Algorithm

FUNCTION = "spmd_random_bits"


@dataclass(frozen=True, slots=True)
class RandomBitsWords:
    """state: address and bytes from word to word; new_state: address, dense. bits: address of dense elements.

    counters: how many are used up. nest: sizes of the loops, see ``_RandomBits``.
    """

    state: int
    state_step: int
    new_state: int
    bits: int
    counters: int
    nest: Sequence[int]

    def packed(self) -> list[int]:
        return [self.state, self.state_step, self.new_state, self.bits, self.counters, *self.nest]


@cache
def random_bits_code(form: RandomBitsForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(random_bits_ir(form), (FUNCTION,))


def random_bits_ir(form: RandomBitsForm) -> str:
    return "\n".join([block_function(form), _RandomBits(form).function()])


class _RandomBits:
    """Writes the function.

    A block's numbers are neighbours in most cases, and the nest's words are (whole blocks, elements left for one more).
    Threefry's pairs are put together along a dimension, which may have others within: then the words are (rows outside,
    pairs in each, whether one more gives its first number alone, elements within), and ``apart`` says so.
    """

    def __init__(self, form: RandomBitsForm) -> None:
        self.form = form
        self.writer = NestWriter()
        self.stored = element_of(form.kind.numpy).stored
        self.size = form.kind.byte_size
        self.each = form.algorithm.block // (2 if form.kind.bits == 64 else 1)

    def function(self) -> str:
        form, writer, value = self.form, self.writer, self.writer.value
        word = writer.next_word
        state, step, new_state, bits = word("ptr"), word(), word("ptr"), word("ptr")
        counters = word()
        words = [self.state_word(state, step, i) for i in range(form.state_words)]
        self.key, self.low = words[0], words[1]
        self.high = words[2] if len(words) > 2 else words[0]
        # The new state goes last: it may lie where the old one does.
        if form.apart:
            self.pairs(bits)
        else:
            self.neighbours(bits)
        if form.gives_state:
            after = value(f"add i64 {self.low}, {counters}")
            values = [self.key, after]
            if form.algorithm is Algorithm.PHILOX and len(words) > 2:
                values.append(self.carried(after))
            for i, x in enumerate(values):
                place = value(f"getelementptr i64, ptr {new_state}, i64 {i}")
                writer.add(f"store i64 {x}, ptr {place}")
        return writer.function(FUNCTION)

    def state_word(self, state: str, step: str, i: int) -> str:
        way = self.writer.value(f"mul i64 {step}, {i}")
        place = self.writer.value(f"getelementptr i8, ptr {state}, i64 {way}")
        return self.writer.value(f"load i64, ptr {place}")

    def carried(self, counter: str) -> str:
        """The high word of a counter whose low one is ``counter``, the first one's or more."""
        wrapped = self.writer.value(f"icmp ult i64 {counter}, {self.low}")
        carry = self.writer.value(f"zext i1 {wrapped} to i64")
        return self.writer.value(f"add i64 {self.high}, {carry}")

    def block(self, number: str) -> list[str]:
        """The elements of counter ``number``, counted from the first one."""
        value = self.writer.value
        counter = value(f"add i64 {self.low}, {number}")
        high = self.carried(counter)
        count = self.each
        struct = f"{{ {', '.join([self.stored] * count)} }}"
        made = value(f"call {struct} @block(i64 {self.key}, i64 {counter}, i64 {high})")
        return [value(f"extractvalue {struct} {made}, {n}") for n in range(count)]

    def neighbours(self, bits: str) -> None:
        writer, value = self.writer, self.writer.value
        whole, left = writer.next_word(), writer.next_word()
        with writer.unless_zero(whole), writer.element_loop(whole) as k:
            for n, element in enumerate(self.block(k)):
                place = value(
                    f"getelementptr [{self.each} x {self.stored}], ptr {bits}, i64 {k}, i64 {n}"
                )
                writer.add(f"store {self.stored} {element}, ptr {place}{INDEPENDENT}")
        if self.each == 1:
            return
        with writer.unless_zero(left):
            last = value(f"getelementptr [{self.each} x {self.stored}], ptr {bits}, i64 {whole}")
            for n, element in enumerate(self.block(whole)[:-1]):
                with writer.when(value(f"icmp ugt i64 {left}, {n}")):
                    place = value(f"getelementptr {self.stored}, ptr {last}, i64 {n}")
                    writer.add(f"store {self.stored} {element}, ptr {place}")

    def pairs(self, bits: str) -> None:
        """Counter (row, pair, i) gives elements (row, 2 pair, i) and (row, 2 pair + 1, i), where there is such."""
        writer, value = self.writer, self.writer.value
        rows, pairs, odd, inner = (writer.next_word() for _ in range(4))
        every = value(f"add i64 {pairs}, {odd}")
        lines = value(f"add i64 {every}, {pairs}")
        row_counters = value(f"mul i64 {every}, {inner}")
        row_elements = value(f"mul i64 {lines}, {inner}")
        row_bytes = value(f"mul i64 {row_elements}, {self.size}")
        pair_bytes = value(f"mul i64 {inner}, {2 * self.size}")
        cursors = {0: Cursor("0", row_counters, counts=True), 1: Cursor(bits, row_bytes)}
        with writer.loop(rows, cursors) as (_, row):
            with writer.unless_zero(pairs):
                both = {0: Cursor(row[0], inner, counts=True), 1: Cursor(row[1], pair_bytes)}
                with writer.loop(pairs, both) as (_, here):
                    self.line(here[0], here[1], inner, both=True)
            with writer.unless_zero(odd):
                before = value(f"mul i64 {pairs}, {inner}")
                way = value(f"mul i64 {pairs}, {pair_bytes}")
                counter = value(f"add i64 {row[0]}, {before}")
                last = value(f"getelementptr i8, ptr {row[1]}, i64 {way}")
                self.line(counter, last, inner, both=False)

    def line(self, counter: str, first: str, inner: str, *, both: bool) -> None:
        writer, value = self.writer, self.writer.value
        second = value(f"getelementptr {self.stored}, ptr {first}, i64 {inner}")
        with writer.element_loop(inner) as k:
            elements = self.block(value(f"add i64 {counter}, {k}"))
            for element, base in zip(elements, (first, second) if both else (first,), strict=False):
                place = value(f"getelementptr {self.stored}, ptr {base}, i64 {k}")
                writer.add(f"store {self.stored} {element}, ptr {place}{INDEPENDENT}")
