"""Native code of a reduction of one or more arrays by a scalar program, such as argmax.

A row is what is reduced to one total of each array. Each total accumulates its elements one by one, in row-major order
of the reduced dimensions, so that any program is allowed. The totals of a block of rows are vectorized.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.argument_record import Address, Record, Word, record, sized
from runtime.program.scalar_program import ScalarProgram
from spmd.lazy_dataclass import dataclass

FUNCTION = "spmd_reduce"


@dataclass(frozen=True, slots=True)
class ReduceVariant:
    """Variant of the code. The parameters of ``program`` are first the totals, then the elements.

    ``retained`` and ``reduced`` are numbers of dimensions. ``rows`` is the number of rows in a block along the last
    retained dimension. ``packed`` tells for each operand, then for each result, whether it is contiguous along that
    dimension.
    """

    program: ScalarProgram
    retained: int
    reduced: int
    rows: int
    packed: tuple[bool, ...]


@record
class ReducedArray(Record):
    """Operand: its address, and its strides in bytes along the retained and along the reduced dimensions."""

    address: Address
    retained: Sequence[Word]
    reduced: Sequence[Word]


@record
class TotalsArray(Record):
    """Result: its address, and its strides in bytes along the retained dimensions."""

    address: Address
    retained: Sequence[Word]


@record
class ReduceRecord(Record):
    """Record of a reduction: the sizes of the dimensions, slowest first, and the arrays.

    No retained size is 0. ``inits`` are the addresses of the initial values.
    """

    retained: Sequence[Word]
    reduced: Sequence[Word]
    operands: Sequence[ReducedArray] = sized("arrays")
    inits: Sequence[Address] = sized("arrays")
    results: Sequence[TotalsArray] = sized("arrays")


@cache
def reduce_code(variant: ReduceVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a ReduceRecord."""
    return host_jit().compile(_Reduce(variant).text(), (FUNCTION,))


#: Cursor of each array, by its number: first operands, then results.
_Here: TypeAlias = dict[int, Pointer]
_Strides: TypeAlias = dict[int, Int]


class _Reduce:
    """Writer of the function. ``here`` maps the numbers of arrays, operands first and then results, to cursors."""

    def __init__(self, variant: ReduceVariant) -> None:
        self.variant = variant
        program = variant.program
        self.types = [stored_type(program.kind_of(r)) for r in program.results]
        self.count = len(self.types)
        self.f = FunctionWriter(
            FUNCTION,
            ReduceRecord,
            module=Module(*program_ir(program, "combine")),
            retained=variant.retained,
            reduced=variant.reduced,
            arrays=self.count,
        )
        self.totals = [self.f.array(variant.rows, kind) for kind in self.types]

    def text(self) -> str:
        rec = self.f.record
        self.retained_sizes: list[Int] = rec.retained
        self.reduced_sizes: list[Int] = rec.reduced
        here: dict[int, Pointer] = {}
        self.retained_strides: dict[int, list[Int]] = {}
        self.reduced_strides: dict[int, list[Int]] = {}
        for i, operand in enumerate(rec.operands):
            here[i], self.retained_strides[i] = operand.address, operand.retained
            self.reduced_strides[i] = operand.reduced
        self.inits = [init.load(kind) for kind, init in zip(self.types, rec.inits, strict=True)]
        for i, result in enumerate(rec.results, self.count):
            here[i], self.retained_strides[i] = result.address, result.retained
        self.elements = self.f.constant(1)
        for size in self.reduced_sizes:
            self.elements = self.elements * size
        self.rows(0, here)
        return self.f.end()

    def rows(self, d: int, here: _Here) -> None:
        """Write the loops over the retained dimensions from ``d`` on."""
        f = self.f
        strides = {i: own[d] for i, own in self.retained_strides.items()}
        if d < self.variant.retained - 1:
            cursors = {i: Cursor(at, strides[i]) for i, at in here.items()}
            with f.cursor_loop(self.retained_sizes[d], cursors) as (_, inner):
                self.rows(d + 1, inner)
            return
        rows = self.variant.rows
        cursors = {i: Cursor(at, strides[i]) for i, at in here.items()}
        with f.blocks(self.retained_sizes[d], rows, cursors) as (_, count, inner):
            self.block(inner, strides, 1 if rows == 1 else count)

    def block(self, here: _Here, strides: _Strides, count: IntLike) -> None:
        """Write the code that computes ``count`` rows and stores their totals."""
        self.totals_of(here, strides, count)
        with self.f.vector_loop(count) as k:
            for i in range(self.count):
                address = self.element_address(self.count + i, here, strides, k)
                address.store(self.total(i, k).load(self.types[i]))

    def totals_of(self, here: _Here, strides: _Strides, count: IntLike) -> None:
        """Write the code that computes the totals of ``count`` rows, which are the initial values if rows are empty."""
        with self.f.vector_loop(count) as k:
            for i in range(self.count):
                self.total(i, k).store(self.inits[i])
        with self.f.unless_zero(self.elements):
            self.reduced_loops(0, {i: here[i] for i in range(self.count)}, strides, count)

    def reduced_loops(self, d: int, here: _Here, strides: _Strides, count: IntLike) -> None:
        """Write the loops over the reduced dimensions from ``d`` on."""
        if d < self.variant.reduced:
            cursors = {i: Cursor(at, self.reduced_strides[i][d]) for i, at in here.items()}
            with self.f.cursor_loop(self.reduced_sizes[d], cursors) as (_, inner):
                self.reduced_loops(d + 1, inner, strides, count)
            return
        self.accumulate(here, strides, count)

    def accumulate(self, here: _Here, strides: _Strides, count: IntLike) -> None:
        """Write the code that accumulates the next element of each of ``count`` rows."""
        f, struct = self.f, struct_type(self.variant.program)
        with f.vector_loop(count) as k:
            totals = [self.total(i, k).load(kind) for i, kind in enumerate(self.types)]
            elements = [
                self.element_address(i, here, strides, k).load(kind)
                for i, kind in enumerate(self.types)
            ]
            combined = f.results(struct, self.count, "combine", *totals, *elements)
            for i, total in enumerate(combined):
                self.total(i, k).store(total)

    def element_address(self, i: int, here: _Here, strides: _Strides, k: Int) -> Pointer:
        """Return the address of the element of row ``k`` of the block, in array number ``i``."""
        if k.name == "0":
            return here[i]
        if self.variant.packed[i]:
            return here[i].element(self.types[i % self.count], k)
        return here[i].at(k * strides[i])

    def total(self, i: int, k: Int) -> Pointer:
        """Return the address of total ``i`` of row ``k`` of the block, on the stack."""
        return self.totals[i].element(self.types[i], k)
