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
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.combine import combination, element_of, neutral
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.reducer import combining
from runtime.codegen.ir.values import Pointer, Vector, splat, typed
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


@record
class ScanDimension(Record):
    """Size, and strides in bytes."""

    size: Word
    source: Word
    target: Word


@record
class ScanRecord(Record):
    """Addresses, and dimensions in the form's order, the scanned one last.

    Side by side the innermost dimension stands behind the scanned one. No size is 0.
    """

    source: Address
    init: Address
    target: Address
    dimensions: Sequence[ScanDimension]


@cache
def scan_code(form: ScanForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a ScanRecord."""
    return host_jit().compile(scan_ir(form), (FUNCTION,))


def scan_ir(form: ScanForm) -> str:
    return _Scan(form).text()


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


class _Scan:
    """Writes the function."""

    def __init__(self, form: ScanForm) -> None:
        self.form = form
        element = combining(form.kind, form.reduction)
        self.stored, self.wide = element.stored, element.wide
        module = Module(*element.functions)
        self.lanes = 1
        if not form.side_by_side:
            self.lanes = _lanes(form.kind)
            module.add([_combine_vectors(form)])
        self.vector = f"<{self.lanes} x {self.wide}>"
        count = form.outer + 1 + form.side_by_side
        self.f = FunctionWriter(FUNCTION, ScanRecord, module=module, dimensions=count)
        self.buffer = self.f.array(BLOCK if form.side_by_side else CHUNK, self.wide)

    def text(self) -> str:
        rec = self.f.record
        source, init, target = rec.source, rec.init, rec.target
        dimensions = [(d.size, d.source, d.target) for d in rec.dimensions]
        self.init = self.f.call(self.wide, "widen", init.load(self.stored))
        self.nest(dimensions, source, target)
        return self.f.end()

    def nest(self, dimensions: list[_Dimension], source: Pointer, target: Pointer) -> None:
        if len(dimensions) > 1 + self.form.side_by_side:
            (size, *steps), *rest = dimensions
            with self.f.cursor_loop(size, _cursors((source, target), steps)) as (_, here):
                self.nest(rest, here[0], here[1])
        elif self.form.side_by_side:
            self.blocks(dimensions[0], dimensions[1], source, target)
        else:
            self.row(dimensions[0], source, target)

    def blocks(
        self, along: _Dimension, across: _Dimension, source: Pointer, target: Pointer
    ) -> None:
        """Rows side by side: a total for each."""
        f = self.f
        (length, *steps), (rows, *apart) = along, across
        with f.blocks(rows, BLOCK, _cursors((source, target), apart)) as (_, count, here):
            with f.vector_loop(count) as k:
                self.held(k).store(self.init)
            cursors = _cursors((here[0], here[1]), steps)
            with f.cursor_loop(length, cursors) as (_, row), f.vector_loop(count) as k:
                held = self.held(k)
                so_far = held.load(self.wide)
                element = self.read(row[0], apart[0], k)
                pair = (element, so_far) if self.form.backwards else (so_far, element)
                total = f.call(self.wide, "combine", *pair)
                held.store(total)
                self.write(total, row[1], apart[1], k)

    def row(self, along: _Dimension, source: Pointer, target: Pointer) -> None:
        """One row: chunks of it are read, added up in the buffer, and written."""
        f = self.f
        size, *steps = along
        carried = f.array(1, self.vector)
        carried.store(splat(self.init, self.lanes))
        with f.blocks(size, CHUNK, _cursors((source, target), steps)) as (_, count, here):
            with f.vector_loop(count) as k:
                element = self.read(here[0], steps[0], k)
                self.held(k).store(element)
            vectors = {0: Cursor(self.buffer, _VECTOR_BYTES)}
            with f.cursor_loop((count + (self.lanes - 1)) // self.lanes, vectors) as (_, place):
                self.scan_vector(place[0], carried)
            with f.vector_loop(count) as k:
                self.write(self.held(k).load(self.wide), here[1], steps[1], k)

    def scan_vector(self, place: Pointer, carried: Pointer) -> None:
        """Totals within the vector, then with what is carried; what the next one carries needs one step of these."""
        f, vector, lanes = self.f, self.vector, self.lanes
        totals: Vector = place.load(vector, align=64)
        assert not isinstance(self.form.reduction, ScalarProgram)
        neutral_value = f.append(neutral(self.form.kind, self.form.reduction))
        nothing = splat(typed(f, self.wide, neutral_value), lanes)
        distance = 1
        while distance < lanes:
            order = [lanes + k - distance if k >= distance else k for k in range(lanes)]
            before = nothing.shuffled(order, totals)
            totals = f.call(vector, "combine_vectors", before, totals)
            distance *= 2
        so_far = carried.load(vector, align=64)
        whole = totals.shuffled([lanes - 1] * lanes)
        carried.store(f.call(vector, "combine_vectors", so_far, whole), align=64)
        place.store(f.call(vector, "combine_vectors", so_far, totals), align=64)

    def held(self, k: Int) -> Pointer:
        return self.buffer.element(self.wide, k)

    def place(self, base: Pointer, stride: Int, k: Int, *, packed: bool) -> Pointer:
        return base.element(self.stored, k) if packed else base.at(k * stride)

    def read(self, base: Pointer, stride: Int, k: Int) -> Value:
        place = self.place(base, stride, k, packed=self.form.packed[0])
        element: Value = self.f.call(self.wide, "widen", place.load(self.stored))
        return element

    def write(self, total: Value, base: Pointer, stride: Int, k: Int) -> None:
        element = self.f.call(self.stored, "narrow", total)
        self.place(base, stride, k, packed=self.form.packed[1]).store(element)


#: Size, and strides in the source and in the target.
_Dimension: TypeAlias = tuple[Int, Int, Int]


def _cursors(starts: Sequence[Pointer], steps: Sequence[Int]) -> dict[int, Cursor]:
    return {n: Cursor(at, step) for n, (at, step) in enumerate(zip(starts, steps, strict=True))}
