"""Native code of prefix scans along a dimension: a block of rows at a time, or vectors along a row.

A row is the elements along the scanned dimension. Totals have the accumulator's type and are rounded when they are
written. If adjacent elements belong to different rows, ``SCAN_ROWS`` rows are scanned at a time. Otherwise a row goes
through a buffer, a chunk at a time. Within a vector of n elements the scan takes log2(n) steps, which add the elements
1, 2, 4, .. positions before; then the total of all vectors before is added. The order of a sum depends on n only. A
vector has 64 bytes here, on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.combine import combination, combiner_ir, element_of, neutral
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.reducer import combining
from runtime.codegen.ir.values import Pointer, Vector, splat, typed
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.reduce.tuning import SCAN_CHUNK, SCAN_ROWS
from runtime.program.argument_record import Address, Record, Word, record
from runtime.program.scalar_program import Reducer, ScalarProgram
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

FUNCTION = "spmd_scan"
#: Size of a vector of accumulators in bytes.
_VECTOR_BYTES = 64


@dataclass(frozen=True, slots=True)
class ScanVariant:
    """Variant of the code, with ``outer`` dimensions around the scanned one.

    ``side_by_side`` tells that there is a dimension of adjacent rows inside the scanned one. Scans by a program always
    have one, because the scan of a vector along a row needs an associative reduction with a neutral element.
    ``backwards``, of programs only, tells that the scan runs from the end, so that elements are left operands.
    ``packed`` tells whether source and target are contiguous along the innermost dimension.
    """

    kind: PrimitiveType
    reduction: Reducer
    outer: int
    side_by_side: bool
    packed: tuple[bool, bool]
    backwards: bool = False


@record
class ScanDimension(Record):
    """Size of a dimension, and its strides in source and target in bytes."""

    size: Word
    source: Word
    target: Word


@record
class ScanRecord(Record):
    """Record of a scan: addresses, and the outer dimensions, the scanned one and that of adjacent rows, if any.

    No size is 0.
    """

    source: Address
    init: Address
    target: Address
    dimensions: Sequence[ScanDimension]


@cache
def scan_code(variant: ScanVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a ScanRecord."""
    return host_jit().compile(_Scan(variant).text(), (FUNCTION,))


def _lanes(kind: PrimitiveType) -> int:
    """Return the number of accumulators of elements of type ``kind`` in a vector of 64 bytes."""
    wide = element_of(kind.numpy).wide
    size = {"float": 4, "double": 8}.get(wide) or int(wide[1:]) // 8
    return _VECTOR_BYTES // size


def _combine_vectors(variant: ScanVariant) -> str:
    """Return the function @combine_vectors, which combines two vectors of accumulators lane by lane."""
    assert not isinstance(variant.reduction, ScalarProgram), "its totals go side by side"
    wide = element_of(variant.kind.numpy).wide
    lanes = _lanes(variant.kind)
    body = combination(variant.kind.numpy, variant.reduction, wide, lanes)
    return combiner_ir("combine_vectors", f"<{lanes} x {wide}>", body)


class _Scan:
    """Writer of the function."""

    def __init__(self, variant: ScanVariant) -> None:
        self.variant = variant
        element = combining(variant.kind, variant.reduction)
        self.stored, self.wide = element.stored, element.wide
        module = Module(*element.functions)
        self.lanes = 1
        if not variant.side_by_side:
            self.lanes = _lanes(variant.kind)
            module.add([_combine_vectors(variant)])
        self.vector = f"<{self.lanes} x {self.wide}>"
        count = variant.outer + 1 + variant.side_by_side
        self.f = FunctionWriter(FUNCTION, ScanRecord, module=module, dimensions=count)
        self.buffer = self.f.array(SCAN_ROWS if variant.side_by_side else SCAN_CHUNK, self.wide)

    def text(self) -> str:
        rec = self.f.record
        source, init, target = rec.source, rec.init, rec.target
        dimensions = [(d.size, d.source, d.target) for d in rec.dimensions]
        self.init = self.f.call(self.wide, "widen", init.load(self.stored))
        self.nest(dimensions, source, target)
        return self.f.end()

    def nest(self, dimensions: list[_Dimension], source: Pointer, target: Pointer) -> None:
        """Write the loops over the remaining ``dimensions``, outer ones first."""
        if len(dimensions) > 1 + self.variant.side_by_side:
            (size, *steps), *rest = dimensions
            with self.f.cursor_loop(size, _cursors((source, target), steps)) as (_, here):
                self.nest(rest, here[0], here[1])
        elif self.variant.side_by_side:
            self.blocks(dimensions[0], dimensions[1], source, target)
        else:
            self.row(dimensions[0], source, target)

    def blocks(
        self, along: _Dimension, across: _Dimension, source: Pointer, target: Pointer
    ) -> None:
        """Write the scan of rows ``across``, a block of rows at a time, with a total for each row of the block."""
        f = self.f
        (length, *steps), (rows, *apart) = along, across
        with f.blocks(rows, SCAN_ROWS, _cursors((source, target), apart)) as (_, count, here):
            with f.vector_loop(count) as k:
                self.accumulator(k).store(self.init)
            cursors = _cursors((here[0], here[1]), steps)
            with f.cursor_loop(length, cursors) as (_, row), f.vector_loop(count) as k:
                accumulator = self.accumulator(k)
                accumulated = accumulator.load(self.wide)
                element = self.read(row[0], apart[0], k)
                pair = (element, accumulated) if self.variant.backwards else (accumulated, element)
                total = f.call(self.wide, "combine", *pair)
                accumulator.store(total)
                self.write(total, row[1], apart[1], k)

    def row(self, along: _Dimension, source: Pointer, target: Pointer) -> None:
        """Write the scan of one row, whose chunks are read, scanned in the buffer, and written."""
        f = self.f
        size, *steps = along
        carried = f.array(1, self.vector)
        carried.store(splat(self.init, self.lanes))
        with f.blocks(size, SCAN_CHUNK, _cursors((source, target), steps)) as (_, count, here):
            with f.vector_loop(count) as k:
                element = self.read(here[0], steps[0], k)
                self.accumulator(k).store(element)
            vectors = {0: Cursor(self.buffer, _VECTOR_BYTES)}
            with f.cursor_loop((count + (self.lanes - 1)) // self.lanes, vectors) as (_, vector):
                self.scan_vector(vector[0], carried)
            with f.vector_loop(count) as k:
                self.write(self.accumulator(k).load(self.wide), here[1], steps[1], k)

    def scan_vector(self, pointer: Pointer, carried: Pointer) -> None:
        """Write the scan of a vector, which then is combined with the carried total by one operation."""
        f, vector, lanes = self.f, self.vector, self.lanes
        totals: Vector = pointer.load(vector, align=64)
        assert not isinstance(self.variant.reduction, ScalarProgram)
        neutral_value = f.append(neutral(self.variant.kind, self.variant.reduction))
        nothing = splat(typed(f, self.wide, neutral_value), lanes)
        distance = 1
        while distance < lanes:
            order = [lanes + k - distance if k >= distance else k for k in range(lanes)]
            before = nothing.shuffled(order, totals)
            totals = f.call(vector, "combine_vectors", before, totals)
            distance *= 2
        accumulated = carried.load(vector, align=64)
        last = totals.shuffled([lanes - 1] * lanes)
        carried.store(f.call(vector, "combine_vectors", accumulated, last), align=64)
        pointer.store(f.call(vector, "combine_vectors", accumulated, totals), align=64)

    def accumulator(self, k: Int) -> Pointer:
        """Return the address of accumulator number ``k``, in the buffer."""
        return self.buffer.element(self.wide, k)

    def element_address(self, base: Pointer, stride: Int, k: Int, *, packed: bool) -> Pointer:
        return base.element(self.stored, k) if packed else base.at(k * stride)

    def read(self, base: Pointer, stride: Int, k: Int) -> Value:
        address = self.element_address(base, stride, k, packed=self.variant.packed[0])
        element: Value = self.f.call(self.wide, "widen", address.load(self.stored))
        return element

    def write(self, total: Value, base: Pointer, stride: Int, k: Int) -> None:
        element = self.f.call(self.stored, "narrow", total)
        self.element_address(base, stride, k, packed=self.variant.packed[1]).store(element)


#: Dimension: its size, and its strides in the source and in the target, in bytes.
_Dimension: TypeAlias = tuple[Int, Int, Int]


def _cursors(starts: Sequence[Pointer], steps: Sequence[Int]) -> dict[int, Cursor]:
    return {n: Cursor(at, step) for n, (at, step) in enumerate(zip(starts, steps, strict=True))}
