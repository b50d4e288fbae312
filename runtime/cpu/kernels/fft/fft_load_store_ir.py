"""Native code that brings a bundle of lines into the buffer of its transform, and back to where they belong.

Lines are arrays' along the transformed dimension; their elements are complex numbers, or pairs of neighbouring real
ones. Where elements of a line are neighbours, squares of as many lines as a vector has lanes are transposed in
registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.elements.builder import Float, Int, IntLike
from runtime.codegen.elements.complex_numbers import Complex
from runtime.codegen.elements.formats import FloatFormat
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.values import Pointer, Vector
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.fft.fft_ir import (
    VECTOR_BYTES,
    in_all_lanes,
    load_slot,
    store_slot,
    vectors_of,
)

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


@record
class LinesRecord(Record):
    """Lines of ``count`` elements; steps in bytes, ``part`` from an element's real part to the imaginary one.

    places: the slot of each element, in bytes from the buffer's beginning. factor: the address of what results are
    multiplied by.
    """

    array: Address
    buffer: Address
    places: Address
    factor: Address
    lines: Word
    line_step: Word
    count: Word
    element_step: Word
    part: Word


@cache
def lines_code(form: LinesForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a LinesRecord."""
    passes = Passes.VECTORIZE if form.lie is Lie.APART else Passes.TIDY
    return host_jit().compile(_Lines(form).text(), (FUNCTION,), passes=passes)


_PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"


class _Lines:
    """Writes the function."""

    buffer: Pointer
    places: Pointer

    def __init__(self, form: LinesForm) -> None:
        self.form = form
        self.f = FunctionWriter(FUNCTION, LinesRecord, module=Module(_PREFETCH))
        self.vectors = vectors_of(form.form)
        self.part_bytes = form.form.bits // 8

    def text(self) -> str:
        f, rec = self.f, self.f.record
        array, self.buffer, self.places, factor = rec.array, rec.buffer, rec.places, rec.factor
        self.lines, self.line_step, self.count = rec.lines, rec.line_step, rec.count
        self.element_step, self.part = rec.element_step, rec.part
        self.one_factor = factor.load(self.form.form)
        if self.form.stores:
            self.factor = in_all_lanes(factor, self.form.form).re
        if self.form.lie is Lie.ALONG:
            self.squares(array)
        elif self.form.lie is Lie.ACROSS:
            ahead = self.element_step * AHEAD
            with self.elements(array, 0, self.count) as (slot, at):
                self.fetch(at.at(ahead))
                self.across(at, slot)
        else:
            self.apart(array, 0, self.count)
        return f.end()

    def squares(self, array: Pointer) -> None:
        """Write IR that moves as many elements at a time as fill a vector, then the rest."""
        f, lanes = self.f, self.vectors.lanes
        side = lanes // 2
        squares = self.count // side
        cursors = {0: Cursor(array, VECTOR_BYTES)}
        with f.unless_zero(squares), f.cursor_loop(squares, cursors) as (number, at):
            first = number * side
            rows = [at[0]]
            for _ in range(1, lanes):
                rows.append(rows[-1].at(self.line_step))
            self.square(rows, [self.slot(first + e) for e in range(side)])
        done = squares * side
        left = self.count - done
        with f.unless_zero(left):
            self.apart(array.at(done * self.element_step), done, left)

    def square(self, rows: list[Pointer], slots: list[Pointer]) -> None:
        align = self.part_bytes
        if not self.form.stores:
            columns = self.transposed([row.load(self.vectors, align) for row in rows])
            for e, slot in enumerate(slots):
                store_slot(self.in_order(Complex(columns[2 * e], columns[2 * e + 1])), slot)
            return
        columns = [part for slot in slots for part in self.loaded(slot)]
        for x, row in zip(self.transposed(columns), rows, strict=True):
            row.store(x, align)

    def loaded(self, slot: Pointer) -> tuple[Float, Float]:
        """Return the parts of a result, multiplied by the factor."""
        x = self.in_order(load_slot(slot, self.form.form).times(self.factor))
        return x.re, x.im

    def transposed(self, rows: list[Float]) -> list[Float]:
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

    def shuffled(self, a: Float, b: Float, numbers: list[int]) -> Float:
        pair = [Vector(self.f, x.type, x.name) for x in (a, b)]
        return Float(self.f, self.vectors, pair[0].shuffled(numbers, pair[1]).name)

    def across(self, at: Pointer, slot: Pointer) -> None:
        """One element of all lines."""
        n, align = self.vectors.lanes, self.part_bytes
        later = at.at(VECTOR_BYTES)
        if not self.form.stores:
            a, b = (place.load(self.vectors, align) for place in (at, later))
            even = self.shuffled(a, b, list(range(0, 2 * n, 2)))
            odd = self.shuffled(a, b, list(range(1, 2 * n, 2)))
            store_slot(self.in_order(Complex(even, odd)), slot)
            return
        real, imaginary = self.loaded(slot)
        for half, place in enumerate((at, later)):
            numbers = [c // 2 + half * n // 2 + (n if c % 2 else 0) for c in range(n)]
            place.store(self.shuffled(real, imaginary, numbers), align)

    def fetch(self, later: Pointer) -> None:
        """Two vectors of an element that comes later."""
        writes = int(self.form.stores)
        for way in (0, VECTOR_BYTES):
            place = later.at(way)
            self.f.add(f"call void @llvm.prefetch.p0(ptr {place}, i32 {writes}, i32 3, i32 1)")

    def apart(self, array: Pointer, first: IntLike, count: Int) -> None:
        """``count`` elements from number ``first`` on, a lane at a time."""
        f, t = self.f, self.form.form
        ways = (self.part, 0) if self.form.swapped else (0, self.part)
        with self.elements(array, first, count) as (slot, at):
            parts = [(at.at(way), slot.at(n * VECTOR_BYTES)) for n, way in enumerate(ways)]
            with f.vector_loop(self.lines) as k:
                way = k * self.line_step
                for outside, inside in parts:
                    place, lane = outside.at(way), inside.element(t.name, k)
                    source, target = (lane, place) if self.form.stores else (place, lane)
                    x = source.load(t)
                    target.store(x * self.one_factor if self.form.stores else x)

    @contextmanager
    def elements(
        self, array: Pointer, first: IntLike, count: Int
    ) -> Iterator[tuple[Pointer, Pointer]]:
        """A loop over elements: the slot of each, and the first line's in the array."""
        begin = self.places.element("i64", first)
        cursors = {0: Cursor(begin, 8), 1: Cursor(array, self.element_step)}
        with self.f.cursor_loop(count, cursors) as (_, at):
            yield self.buffer.at(at[0].word()), at[1]

    def slot(self, number: Int) -> Pointer:
        return self.buffer.at(self.places.element("i64", number).word())

    def in_order(self, x: Complex) -> Complex:
        return Complex(x.im, x.re) if self.form.swapped else x
