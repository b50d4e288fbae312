"""Native code of rng-bit-generator: Threefry-2x32 and Philox-4x32 of counters that follow on one another.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A counter's block does not depend on another's,
so that loops over counters make vectors. Which element takes which number is XLA's, as in spmd/evaluator/rng.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Code, Int
from runtime.codegen.ir.combine import element_of
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.records.random_bits import Algorithm
from spmd.shape import PrimitiveType

FUNCTION = "spmd_random_bits"
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)


@dataclass(frozen=True, slots=True)
class RandomBitsForm:
    """kind: an integer type. state_words: of the state (u64). gives_state: whether the state after them is wanted, too.

    apart: Threefry's two numbers go to elements that are no neighbours.
    """

    algorithm: Algorithm
    kind: PrimitiveType
    state_words: int
    gives_state: bool
    apart: bool = False


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


def _threefry(key: Sequence[Int], x: Sequence[Int]) -> list[Int]:
    """20 rounds."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x0, x1 = x[0] + schedule[0], x[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << rotation) | (x1 >> (32 - rotation)))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + (group + 1)
    return [x0, x1]


def _philox(key: Sequence[Int], x: Sequence[Int]) -> list[Int]:
    """10 rounds."""
    k0, k1 = key
    for _ in range(10):
        products = [
            x[i].resized("i64") * multiplier
            for i, multiplier in zip((0, 2), _PHILOX_MULTIPLIERS, strict=True)
        ]
        (low0, high0), (low1, high1) = map(_halves, products)
        x = [high1 ^ x[1] ^ k0, low1, high0 ^ x[3] ^ k1, low0]
        k0, k1 = k0 + _PHILOX_WEYL[0], k1 + _PHILOX_WEYL[1]
    return list(x)


def _halves(x: Int) -> tuple[Int, Int]:
    """Low and high 32 bits."""
    return x.resized("i32"), (x >> 32).resized("i32")


def block_function(form: RandomBitsForm) -> str:
    """@block(key, low, high) of 64-bit numbers: the elements that one counter (high, low) gives, as memory has them."""
    block = _threefry if form.algorithm is Algorithm.THREEFRY else _philox
    code = Code()
    key, low, high = (Int(code, "i64", f"%{name}") for name in ("key", "low", "high"))
    words = [*_halves(low), *_halves(high)][: form.algorithm.block]
    numbers = block(_halves(key), words)
    if form.kind.bits == 64:
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        numbers = [a.resized("i64") | (b.resized("i64") << 32) for a, b in pairs]
    stored = element_of(form.kind.numpy).stored
    numbers = [number.resized(stored) for number in numbers]
    if form.kind.bits < 8:
        numbers = [number & ((1 << form.kind.bits) - 1) for number in numbers]
    struct = f"{{ {', '.join([stored] * len(numbers))} }}"
    lines = [code.text(numbers[-1])]
    value = "undef"
    for n, number in enumerate(numbers):
        lines.append(f"%s{n} = insertvalue {struct} {value}, {stored} {number.name}, {n}")
        value = f"%s{n}"
    body = "\n  ".join(lines)
    return (
        f"define internal {struct} @block(i64 %key, i64 %low, i64 %high) alwaysinline {{\n"
        f"  {body}\n  ret {struct} {value}\n}}"
    )


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
