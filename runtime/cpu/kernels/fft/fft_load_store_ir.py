"""Native code that loads a batch of lines into the buffer of its transform, and that stores the batch.

Lines are along the transformed dimension of an array. Their elements are complex numbers, or pairs of adjacent real
numbers. If lines are contiguous, squares of as many lines as a vector has lanes are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache

from runtime.codegen.elements.builder import Float, Int, IntLike
from runtime.codegen.elements.complex_numbers import Complex
from runtime.codegen.elements.formats import FloatFormat
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.values import Pointer, Vector
from runtime.codegen.ir.vectors import prefetch
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.fft.fft_ir import (
    VECTOR_BYTES,
    in_all_lanes,
    load_complex,
    store_complex,
    vectors_of,
)
from runtime.program.argument_record import Address, Record, Word, record
from spmd.lazy_dataclass import dataclass

FUNCTION = "spmd_fft_lines"
#: Prefetch distance in elements of adjacent lines: each element may be on another page (Zen 5: without it 0.97 to
#: 1.02).
AHEAD = 32


class Lie(Enum):
    """Layout of the elements of a batch in the array."""

    ALONG = "along"
    """The elements of a line are contiguous, and so are the real and the imaginary part of an element."""
    ACROSS = "across"
    """Equal elements of neighbouring lines are contiguous, and so are the real and the imaginary part of an element."""
    APART = "apart"
    """The strides are any others, or there are fewer lines than a vector has lanes."""


@dataclass(frozen=True, slots=True)
class LinesVariant:
    """Variant of the code for numbers whose parts have the format ``part_format``.

    ``stores`` tells that the array is written, and otherwise it is read. ``swapped`` tells that the parts are
    exchanged: the inverse transform is the transform of swapped parts, with swapped results.
    """

    part_format: FloatFormat
    lie: Lie
    stores: bool
    swapped: bool


@record
class LinesRecord(Record):
    """Record of ``lines`` lines of ``count`` elements, with strides in bytes.

    ``part`` is the stride from a real to its imaginary part. ``offsets`` is the address of the elements' offsets in the
    buffer in bytes, and ``factor`` that of a factor by which stored elements are multiplied.
    """

    array: Address
    buffer: Address
    offsets: Address
    factor: Address
    lines: Word
    line_step: Word
    count: Word
    element_step: Word
    part: Word


@cache
def lines_code(variant: LinesVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a LinesRecord."""
    passes = Passes.VECTORIZE if variant.lie is Lie.APART else Passes.TIDY
    return host_jit().compile(_Lines(variant).text(), (FUNCTION,), passes=passes)


class _Lines:
    """Writer of the function."""

    buffer: Pointer
    offsets: Pointer

    def __init__(self, variant: LinesVariant) -> None:
        self.variant = variant
        self.f = FunctionWriter(FUNCTION, LinesRecord)
        self.vectors = vectors_of(variant.part_format)
        self.part_bytes = variant.part_format.bits // 8

    def text(self) -> str:
        f, rec = self.f, self.f.record
        array, self.buffer, self.offsets, factor = rec.array, rec.buffer, rec.offsets, rec.factor
        self.lines, self.line_step, self.count = rec.lines, rec.line_step, rec.count
        self.element_step, self.part = rec.element_step, rec.part
        self.one_factor = factor.load(self.variant.part_format)
        if self.variant.stores:
            self.factor = in_all_lanes(factor, self.variant.part_format).re
        if self.variant.lie is Lie.ALONG:
            self.squares(array)
        elif self.variant.lie is Lie.ACROSS:
            ahead = self.element_step * AHEAD
            with self.elements(array, 0, self.count) as (pointer, at):
                self.fetch(at.at(ahead))
                self.across(at, pointer)
        else:
            self.apart(array, 0, self.count)
        return f.end()

    def squares(self, array: Pointer) -> None:
        """Write the moves of squares, whose lines and elements fill vectors, and then of the remaining elements."""
        f, lanes = self.f, self.vectors.lanes
        side = lanes // 2
        squares = self.count // side
        cursors = {0: Cursor(array, VECTOR_BYTES)}
        with f.unless_zero(squares), f.cursor_loop(squares, cursors) as (number, at):
            first = number * side
            rows = [at[0]]
            for _ in range(1, lanes):
                rows.append(rows[-1].at(self.line_step))
            self.square(rows, [self.pointer_to(first + e) for e in range(side)])
        done = squares * side
        left = self.count - done
        with f.unless_zero(left):
            self.apart(array.at(done * self.element_step), done, left)

    def square(self, rows: list[Pointer], pointers: list[Pointer]) -> None:
        """Write the move of a square between the lines at ``rows`` and the elements of the buffer at ``pointers``."""
        align = self.part_bytes
        if not self.variant.stores:
            columns = self.transposed([row.load(self.vectors, align) for row in rows])
            for e, pointer in enumerate(pointers):
                store_complex(self.in_order(Complex(columns[2 * e], columns[2 * e + 1])), pointer)
            return
        columns = [part for pointer in pointers for part in self.loaded(pointer)]
        for x, row in zip(self.transposed(columns), rows, strict=True):
            row.store(x, align)

    def loaded(self, pointer: Pointer) -> tuple[Float, Float]:
        """Load the parts of an element of the buffer, multiplied by the factor."""
        x = self.in_order(load_complex(pointer, self.variant.part_format).times(self.factor))
        return x.re, x.im

    def transposed(self, rows: list[Float]) -> list[Float]:
        """Transpose a square of vectors by exchanging blocks, one bit of the indices at a time."""
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
        """Return the elements ``numbers`` of the vectors ``a`` and ``b``."""
        pair = [Vector(self.f, x.type, x.name) for x in (a, b)]
        return Float(self.f, self.vectors, pair[0].shuffled(numbers, pair[1]).name)

    def across(self, at: Pointer, pointer: Pointer) -> None:
        """Write the move of one element of all lines, which are adjacent at ``at``."""
        n, align = self.vectors.lanes, self.part_bytes
        later = at.at(VECTOR_BYTES)
        if not self.variant.stores:
            a, b = (half_address.load(self.vectors, align) for half_address in (at, later))
            even = self.shuffled(a, b, list(range(0, 2 * n, 2)))
            odd = self.shuffled(a, b, list(range(1, 2 * n, 2)))
            store_complex(self.in_order(Complex(even, odd)), pointer)
            return
        real, imaginary = self.loaded(pointer)
        for half, half_address in enumerate((at, later)):
            numbers = [c // 2 + half * n // 2 + (n if c % 2 else 0) for c in range(n)]
            half_address.store(self.shuffled(real, imaginary, numbers), align)

    def fetch(self, later: Pointer) -> None:
        """Prefetch both vectors of an element that is moved later."""
        for way in (0, VECTOR_BYTES):
            prefetch(later.at(way), writes=self.variant.stores)

    def apart(self, array: Pointer, first: IntLike, count: Int) -> None:
        """Write the move of ``count`` elements from number ``first`` on, one line at a time."""
        f, t = self.f, self.variant.part_format
        ways = (self.part, 0) if self.variant.swapped else (0, self.part)
        with self.elements(array, first, count) as (pointer, at):
            parts = [(at.at(way), pointer.at(n * VECTOR_BYTES)) for n, way in enumerate(ways)]
            with f.vector_loop(self.lines) as k:
                way = k * self.line_step
                for outside, inside in parts:
                    address, in_buffer = outside.at(way), inside.element(t.name, k)
                    source, target = (
                        (in_buffer, address) if self.variant.stores else (address, in_buffer)
                    )
                    x = source.load(t)
                    target.store(x * self.one_factor if self.variant.stores else x)

    @contextmanager
    def elements(
        self, array: Pointer, first: IntLike, count: Int
    ) -> Iterator[tuple[Pointer, Pointer]]:
        """Repeat for each element. Yields its address in the buffer, and its address in the array's first line."""
        begin = self.offsets.element("i64", first)
        cursors = {0: Cursor(begin, 8), 1: Cursor(array, self.element_step)}
        with self.f.cursor_loop(count, cursors) as (_, at):
            yield self.buffer.at(at[0].word()), at[1]

    def pointer_to(self, number: Int) -> Pointer:
        """Return the address of element ``number`` in the buffer."""
        return self.buffer.at(self.offsets.element("i64", number).word())

    def in_order(self, x: Complex) -> Complex:
        """Return ``x`` with its parts exchanged if the variant says so."""
        return Complex(x.im, x.re) if self.variant.swapped else x
