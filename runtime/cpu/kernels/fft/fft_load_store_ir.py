"""Native code that brings a bundle of lines into the buffer of its transform, and back to where they belong.

Lines are arrays' along the transformed dimension; their elements are complex numbers, or pairs of neighbouring real
ones. Where elements of a line are neighbours, squares of as many lines as a vector has lanes are transposed in
registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from enum import Enum
from functools import cache

from runtime.codegen.elements.builder import FloatFormat
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.fft.fft_ir import VECTOR_BYTES, Complex, VectorWriter, lanes_of

FUNCTION = "spmd_fft_lines"
#: Elements of side-by-side lines that are fetched before their turn: each may lie on a page of its own.
AHEAD = 32


class Lie(Enum):
    """Layout of the elements of a batch in the array."""

    ALONG = "along"
    """Elements of a line are neighbours, and so are their parts."""
    ACROSS = "across"
    """Lines are neighbours, and so are the parts of an element."""
    APART = "apart"
    """Anyhow; or there are fewer lines than a vector has lanes."""


@dataclass(frozen=True, slots=True)
class LinesForm:
    """form: of a part. stores: whether the array is written. swapped: real parts are taken for imaginary ones.

    The inverse transform is the transform of swapped parts, swapped.
    """

    form: FloatFormat
    lie: Lie
    stores: bool
    swapped: bool


@dataclass(frozen=True, slots=True)
class LinesWords:
    """Lines of ``count`` elements; steps in bytes, ``part`` from an element's real part to the imaginary one.

    places: the slot of each element, in bytes from the buffer's beginning. factor: the address of what results are
    multiplied by.
    """

    array: int
    buffer: int
    places: int
    factor: int
    lines: int
    line_step: int
    count: int
    element_step: int
    part: int

    def packed(self) -> list[int]:
        return list(astuple(self))


@cache
def lines_code(form: LinesForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    passes = Passes.VECTORIZE if form.lie is Lie.APART else Passes.TIDY
    return host_jit().compile(_PREFETCH + _Lines(form).function(), (FUNCTION,), passes=passes)


_PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n"


class _Lines:
    """Writes the function."""

    def __init__(self, form: LinesForm) -> None:
        self.form = form
        self.writer = VectorWriter(form.form)
        self.part_bytes = form.form.bits // 8
        self.lanes = lanes_of(form.form)

    def function(self) -> str:
        writer, word = self.writer, self.writer.next_word
        array, self.buffer, self.places, factor = (word("ptr") for _ in range(4))
        self.lines, self.line_step, self.count, self.element_step, self.part = (
            word() for _ in range(5)
        )
        self.one_factor = writer.value(f"load {self.form.form.name}, ptr {factor}")
        self.factor = writer.everywhere(factor)[0] if self.form.stores else ""
        if self.form.lie is Lie.ALONG:
            self.squares(array)
        elif self.form.lie is Lie.ACROSS:
            ahead = writer.value(f"mul i64 {self.element_step}, {AHEAD}")
            with self.elements(array, "0", self.count) as (slot, at):
                self.fetch(writer.moved_by(at, ahead))
                self.across(at, slot)
        else:
            self.apart(array, "0", self.count)
        return writer.function(FUNCTION)

    def squares(self, array: str) -> None:
        """Write IR that moves as many elements at a time as fill a vector, then the rest."""
        writer, value, lanes = self.writer, self.writer.value, self.lanes
        side = lanes // 2
        squares = value(f"udiv i64 {self.count}, {side}")
        with writer.unless_zero(squares):
            cursors = {0: Cursor(array, str(VECTOR_BYTES))}
            with writer.loop(squares, cursors) as (number, at):
                first = value(f"mul i64 {number}, {side}")
                rows = [at[0]]
                for _ in range(1, lanes):
                    rows.append(writer.moved_by(rows[-1], self.line_step))
                slots = [self.slot(value(f"add i64 {first}, {e}")) for e in range(side)]
                self.square(rows, slots)
        done = value(f"mul i64 {squares}, {side}")
        left = value(f"sub i64 {self.count}, {done}")
        with writer.unless_zero(left):
            way = value(f"mul i64 {done}, {self.element_step}")
            self.apart(writer.moved_by(array, way), done, left)

    def square(self, rows: list[str], slots: list[str]) -> None:
        writer, align = self.writer, self.part_bytes
        if not self.form.stores:
            columns = self.transposed([writer.load_part(row, align) for row in rows])
            for e, slot in enumerate(slots):
                writer.store(self.in_order((columns[2 * e], columns[2 * e + 1])), slot)
            return
        columns = []
        for slot in slots:
            columns += self.in_order(writer.scaled(writer.load(slot), self.factor))
        for x, row in zip(self.transposed(columns), rows, strict=True):
            writer.store_part(x, row, align)

    def transposed(self, rows: list[str]) -> list[str]:
        """Element j of row i becomes element i of row j: bit by bit of i and j."""
        n, rows = len(rows), list(rows)
        bit = 1
        while bit < n:
            for i in (i for i in range(n) if not i & bit):
                a, b = rows[i], rows[i + bit]
                low = [c if not c & bit else n + c - bit for c in range(n)]
                high = [c + bit if not c & bit else n + c for c in range(n)]
                rows[i], rows[i + bit] = self.shuffled(a, b, low), self.shuffled(a, b, high)
            bit *= 2
        return rows

    def shuffled(self, a: str, b: str, numbers: list[int]) -> str:
        mask = ", ".join(f"i32 {n}" for n in numbers)
        t = self.writer.type
        return self.writer.value(f"shufflevector {t} {a}, {t} {b}, <{len(numbers)} x i32> <{mask}>")

    def across(self, at: str, slot: str) -> None:
        """One element of all lines."""
        writer, n, align = self.writer, self.lanes, self.part_bytes
        later = writer.moved_by(at, VECTOR_BYTES)
        if not self.form.stores:
            a, b = (writer.load_part(place, align) for place in (at, later))
            parts = (
                self.shuffled(a, b, list(range(0, 2 * n, 2))),
                self.shuffled(a, b, list(range(1, 2 * n, 2))),
            )
            writer.store(self.in_order(parts), slot)
            return
        real, imaginary = self.in_order(writer.scaled(writer.load(slot), self.factor))
        for half, place in enumerate((at, later)):
            numbers = [c // 2 + half * n // 2 + (n if c % 2 else 0) for c in range(n)]
            writer.store_part(self.shuffled(real, imaginary, numbers), place, align)

    def fetch(self, later: str) -> None:
        """Two vectors of an element that comes later."""
        for way in (0, VECTOR_BYTES):
            place = self.writer.moved_by(later, way)
            writes = int(self.form.stores)
            self.writer.add(f"call void @llvm.prefetch.p0(ptr {place}, i32 {writes}, i32 3, i32 1)")

    def apart(self, array: str, first: str, count: str) -> None:
        """``count`` elements from number ``first`` on, a lane at a time."""
        writer, value, t = self.writer, self.writer.value, self.form.form.name
        ways = self.in_order(("0", self.part))
        with self.elements(array, first, count) as (slot, at):
            parts = [
                (writer.moved_by(at, way), writer.moved_by(slot, n * VECTOR_BYTES))
                for n, way in enumerate(ways)
            ]
            with writer.element_loop(self.lines) as k:
                way = value(f"mul i64 {k}, {self.line_step}")
                for outside, inside in parts:
                    place = writer.moved_by(outside, way)
                    lane = value(f"getelementptr {t}, ptr {inside}, i64 {k}")
                    source, target = (lane, place) if self.form.stores else (place, lane)
                    x = value(f"load {t}, ptr {source}{INDEPENDENT}")
                    if self.form.stores:
                        x = value(f"fmul {t} {x}, {self.one_factor}")
                    writer.add(f"store {t} {x}, ptr {target}{INDEPENDENT}")

    @contextmanager
    def elements(self, array: str, first: str, count: str) -> Iterator[tuple[str, str]]:
        """A loop over elements: the slot of each, and the first line's in the array."""
        begin = self.writer.value(f"getelementptr i64, ptr {self.places}, i64 {first}")
        cursors = {0: Cursor(begin, "8"), 1: Cursor(array, self.element_step)}
        with self.writer.loop(count, cursors) as (_, at):
            place = self.writer.value(f"load i64, ptr {at[0]}")
            yield self.writer.moved_by(self.buffer, place), at[1]

    def slot(self, number: str) -> str:
        at = self.writer.value(f"getelementptr i64, ptr {self.places}, i64 {number}")
        return self.writer.moved_by(self.buffer, self.writer.value(f"load i64, ptr {at}"))

    def in_order(self, parts: Complex) -> Complex:
        return (parts[1], parts[0]) if self.form.swapped else parts
