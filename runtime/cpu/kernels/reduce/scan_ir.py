"""Native code of running totals along a dimension: totals side by side, or vectors along it.

Totals are kept in the accumulator's type and rounded as each is written. Where neighbours in memory are of different
rows, ``BLOCK`` rows go side by side. Else a row goes through a buffer, a chunk at a time: within a vector of n elements
a total is made in log2(n) steps, of itself and of the one 1, 2, 4, .. places before it, then the total of all vectors
before is added. The order of a sum depends on n alone, which is that of 64 bytes on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.combine import combination, element_of, neutral
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.ir.reducer import combining
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.scalar_program import Reducer, ScalarProgram
from spmd.shape import PrimitiveType

FUNCTION = "spmd_scan"
#: Rows side by side.
BLOCK = 1024
#: Elements of a row in the buffer.
CHUNK = 512
_VECTOR_BYTES = 64


@dataclass(frozen=True, slots=True)
class ScanForm:
    """A program's totals, which need not be numbers that vectors hold, always go side by side.

    outer: dimensions around the scanned one. side_by_side: one more dimension, of neighbours, inside of it. backwards:
    from the end, so that elements are the left ones.

    packed: whether source and target have their neighbours along the innermost dimension.
    """

    kind: PrimitiveType
    reduction: Reducer
    outer: int
    side_by_side: bool
    packed: tuple[bool, bool]
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class ScanWords:
    """Addresses, and (size, stride in the source, in the target) of the dimensions in the form's order, scanned last.

    Side by side the innermost dimension stands behind the scanned one. No size is 0.
    """

    source: int
    init: int
    target: int
    dimensions: Sequence[tuple[int, int, int]]

    def packed(self) -> list[int]:
        words = [self.source, self.init, self.target]
        return words + [word for dimension in self.dimensions for word in dimension]


@cache
def scan_code(form: ScanForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(scan_ir(form), (FUNCTION,))


def scan_ir(form: ScanForm) -> str:
    functions = combining(form.kind, form.reduction).functions
    vectors = [] if form.side_by_side else [_combine_vectors(form)]
    return "\n".join([*functions, *vectors, _Scan(form).function()])


def _lanes(kind: PrimitiveType) -> int:
    wide = element_of(kind.numpy).wide
    size = {"float": 4, "double": 8}.get(wide) or int(wide[1:]) // 8
    return _VECTOR_BYTES // size


def _combine_vectors(form: ScanForm) -> str:
    assert not isinstance(form.reduction, ScalarProgram), "its totals go side by side"
    wide = element_of(form.kind.numpy).wide
    lanes = _lanes(form.kind)
    vector = f"<{lanes} x {wide}>"
    body = combination(form.kind.numpy, form.reduction, wide, lanes)
    return (
        f"define internal {vector} @combine_vectors({vector} %a, {vector} %b) alwaysinline {{\n"
        f"  {body}\n  ret {vector} %r\n}}"
    )


@dataclass(frozen=True, slots=True)
class _Dimension:
    size: str
    source: str
    target: str


class _Scan:
    """Writes the function."""

    def __init__(self, form: ScanForm) -> None:
        self.form = form
        self.writer = NestWriter()
        element = combining(form.kind, form.reduction)
        self.stored, self.wide = element.stored, element.wide
        self.lanes = 1 if form.side_by_side else _lanes(form.kind)
        self.vector = f"<{self.lanes} x {self.wide}>"
        size = BLOCK if form.side_by_side else CHUNK
        self.buffer = self.writer.value(f"alloca [{size} x {self.wide}], align 64")

    def function(self) -> str:
        value, word = self.writer.value, self.writer.next_word
        source, init, target = word("ptr"), word("ptr"), word("ptr")
        count = self.form.outer + 1 + self.form.side_by_side
        dimensions = [_Dimension(word(), word(), word()) for _ in range(count)]
        stored = value(f"load {self.stored}, ptr {init}")
        self.init = value(f"call {self.wide} @widen({self.stored} {stored})")
        self.nest(dimensions, source, target)
        return self.writer.function(FUNCTION)

    def nest(self, dimensions: list[_Dimension], source: str, target: str) -> None:
        if len(dimensions) > 1 + self.form.side_by_side:
            first, *rest = dimensions
            cursors = {0: Cursor(source, first.source), 1: Cursor(target, first.target)}
            with self.writer.loop(first.size, cursors) as (_, here):
                self.nest(rest, here[0], here[1])
        elif self.form.side_by_side:
            self.blocks(dimensions[0], dimensions[1], source, target)
        else:
            self.row(dimensions[0], source, target)

    def pieces(self, size: str, piece: int) -> str:
        above = self.writer.value(f"add i64 {size}, {piece - 1}")
        return self.writer.value(f"udiv i64 {above}, {piece}")

    def length(self, size: str, number: str, piece: int) -> str:
        """Return the length of piece ``number``."""
        value = self.writer.value
        before = value(f"mul i64 {number}, {piece}")
        left = value(f"sub i64 {size}, {before}")
        short = value(f"icmp ult i64 {left}, {piece}")
        return value(f"select i1 {short}, i64 {left}, i64 {piece}")

    def blocks(self, along: _Dimension, across: _Dimension, source: str, target: str) -> None:
        """Rows side by side: a total for each."""
        writer = self.writer
        steps = [writer.value(f"mul i64 {s}, {BLOCK}") for s in (across.source, across.target)]
        cursors = {0: Cursor(source, steps[0]), 1: Cursor(target, steps[1])}
        with writer.loop(self.pieces(across.size, BLOCK), cursors) as (number, here):
            count = self.length(across.size, number, BLOCK)
            with writer.element_loop(count) as k:
                writer.add(f"store {self.wide} {self.init}, ptr {self.held(k)}{INDEPENDENT}")
            inner = {0: Cursor(here[0], along.source), 1: Cursor(here[1], along.target)}
            with writer.loop(along.size, inner) as (_, row), writer.element_loop(count) as k:
                held = self.held(k)
                so_far = writer.value(f"load {self.wide}, ptr {held}{INDEPENDENT}")
                element = self.read(row[0], across.source, k)
                pair = (element, so_far) if self.form.backwards else (so_far, element)
                total = self.combined(*pair)
                writer.add(f"store {self.wide} {total}, ptr {held}{INDEPENDENT}")
                self.write(total, row[1], across.target, k)

    def row(self, along: _Dimension, source: str, target: str) -> None:
        """One row: chunks of it are read, added up in the buffer, and written."""
        writer = self.writer
        carried = writer.value(f"alloca {self.vector}, align 64")
        writer.add(f"store {self.vector} {self.splat(self.init)}, ptr {carried}")
        steps = [writer.value(f"mul i64 {s}, {CHUNK}") for s in (along.source, along.target)]
        cursors = {0: Cursor(source, steps[0]), 1: Cursor(target, steps[1])}
        with writer.loop(self.pieces(along.size, CHUNK), cursors) as (number, here):
            count = self.length(along.size, number, CHUNK)
            with writer.element_loop(count) as k:
                element = self.read(here[0], along.source, k)
                writer.add(f"store {self.wide} {element}, ptr {self.held(k)}{INDEPENDENT}")
            vector_step = str(_VECTOR_BYTES)
            vectors = {0: Cursor(self.buffer, vector_step)}
            with writer.loop(self.pieces(count, self.lanes), vectors) as (_, place):
                self.scan_vector(place[0], carried)
            with writer.element_loop(count) as k:
                total = writer.value(f"load {self.wide}, ptr {self.held(k)}{INDEPENDENT}")
                self.write(total, here[1], along.target, k)

    def scan_vector(self, place: str, carried: str) -> None:
        """Totals within the vector, then with what is carried; what the next one carries needs one step of these."""
        value, vector, lanes = self.writer.value, self.vector, self.lanes
        totals = value(f"load {vector}, ptr {place}, align 64")
        assert not isinstance(self.form.reduction, ScalarProgram)
        nothing = self.splat(value(neutral(self.form.kind, self.form.reduction)))
        distance = 1
        while distance < lanes:
            order = ", ".join(
                f"i32 {lanes + k - distance if k >= distance else k}" for k in range(lanes)
            )
            before = value(
                f"shufflevector {vector} {nothing}, {vector} {totals}, <{lanes} x i32> <{order}>"
            )
            totals = self.combined_vectors(before, totals)
            distance *= 2
        so_far = value(f"load {vector}, ptr {carried}, align 64")
        last = ", ".join([f"i32 {lanes - 1}"] * lanes)
        whole = value(f"shufflevector {vector} {totals}, {vector} poison, <{lanes} x i32> <{last}>")
        following = self.combined_vectors(so_far, whole)
        self.writer.add(f"store {vector} {following}, ptr {carried}, align 64")
        self.writer.add(
            f"store {vector} {self.combined_vectors(so_far, totals)}, ptr {place}, align 64"
        )

    def splat(self, element: str) -> str:
        value, vector, lanes = self.writer.value, self.vector, self.lanes
        one = value(f"insertelement {vector} poison, {self.wide} {element}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return value(f"shufflevector {vector} {one}, {vector} poison, {zeros}")

    def combined(self, a: str, b: str) -> str:
        return self.writer.value(f"call {self.wide} @combine({self.wide} {a}, {self.wide} {b})")

    def combined_vectors(self, a: str, b: str) -> str:
        vector = self.vector
        return self.writer.value(f"call {vector} @combine_vectors({vector} {a}, {vector} {b})")

    def held(self, k: str) -> str:
        return self.writer.value(f"getelementptr {self.wide}, ptr {self.buffer}, i64 {k}")

    def place(self, base: str, stride: str, k: str, *, packed: bool) -> str:
        if packed:
            return self.writer.value(f"getelementptr {self.stored}, ptr {base}, i64 {k}")
        way = self.writer.value(f"mul i64 {k}, {stride}")
        return self.writer.value(f"getelementptr i8, ptr {base}, i64 {way}")

    def read(self, base: str, stride: str, k: str) -> str:
        place = self.place(base, stride, k, packed=self.form.packed[0])
        element = self.writer.value(f"load {self.stored}, ptr {place}{INDEPENDENT}")
        return self.writer.value(f"call {self.wide} @widen({self.stored} {element})")

    def write(self, total: str, base: str, stride: str, k: str) -> None:
        element = self.writer.value(f"call {self.stored} @narrow({self.wide} {total})")
        place = self.place(base, stride, k, packed=self.form.packed[1])
        self.writer.add(f"store {self.stored} {element}, ptr {place}{INDEPENDENT}")
