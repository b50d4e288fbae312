"""Native code of a reduction of several arrays at once by a scalar program, such as the one of argmax.

Each total takes one element after the other, reduced dimensions in row-major order, so that any program will do. Totals
of rows side by side are made together: they make vectors, and none waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, IntLike, Value
from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record, sized
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.copy.transpose_ir import add_tile
from runtime.program.scalar_program import ScalarProgram

FUNCTION = "spmd_reduce"
#: Words each way that are turned at once.
TILE = 16
WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class ReduceForm:
    """The program combines totals, then elements. kept: one at least, the last one that of rows side by side.

    rows: how many of these at once. packed: by array, operands then results, whether these are neighbours in memory.
    turned: empty, or by operand, whether it has 4 bytes, is packed along the last reduced dimension, and is turned,
    TILE elements of TILE rows at a time, so that rows are neighbours; others are the same for all rows. ``rows`` is a
    multiple of TILE then, and there are so many at least.
    """

    program: ScalarProgram
    kept: int
    reduced: int
    rows: int
    packed: tuple[bool, ...]
    turned: tuple[bool, ...] = ()


@record
class ReducedArray(Record):
    """Operand: its address, and strides in bytes along kept and along reduced dimensions."""

    address: Address
    kept: Sequence[Word]
    reduced: Sequence[Word]


@record
class TotalsArray(Record):
    """Result: its address, and strides in bytes along the kept dimensions."""

    address: Address
    kept: Sequence[Word]


@record
class ReduceRecord(Record):
    """Sizes of dimensions, the slowest first; no kept size is 0. inits: addresses of scalars."""

    kept: Sequence[Word]
    reduced: Sequence[Word]
    operands: Sequence[ReducedArray] = sized("arrays")
    inits: Sequence[Address] = sized("arrays")
    results: Sequence[TotalsArray] = sized("arrays")


@cache
def reduce_code(form: ReduceForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a ReduceRecord."""
    return host_jit().compile(reduce_ir(form), (FUNCTION,))


def reduce_ir(form: ReduceForm) -> str:
    module = Module(*program_ir(form.program, "combine"))
    if not form.turned:
        return ReduceWriter(form, module).text()
    add_tile(module, "turn", TILE, WORD_BYTES, align=64)
    return _TurningWriter(form, module).text()


#: Positions in the arrays, by number: operands, then results.
_Here: TypeAlias = dict[int, Pointer]
_Strides: TypeAlias = dict[int, Int]


class ReduceWriter:
    """Writes the function. ``here`` is a cursor by array: operands, then results."""

    def __init__(self, form: ReduceForm, module: Module) -> None:
        self.form = form
        program = form.program
        self.types = [stored_type(program.kind_of(r)) for r in program.results]
        self.count = len(self.types)
        self.f = FunctionWriter(
            FUNCTION,
            ReduceRecord,
            module=module,
            kept=form.kept,
            reduced=form.reduced,
            arrays=self.count,
        )
        self.totals = [self.f.array(form.rows, kind) for kind in self.types]

    def text(self) -> str:
        rec = self.f.record
        self.kept_sizes: list[Int] = rec.kept
        self.reduced_sizes: list[Int] = rec.reduced
        here: dict[int, Pointer] = {}
        self.kept_strides: dict[int, list[Int]] = {}
        self.reduced_strides: dict[int, list[Int]] = {}
        for i, operand in enumerate(rec.operands):
            here[i], self.kept_strides[i] = operand.address, operand.kept
            self.reduced_strides[i] = operand.reduced
        self.inits = [init.load(kind) for kind, init in zip(self.types, rec.inits, strict=True)]
        for i, result in enumerate(rec.results, self.count):
            here[i], self.kept_strides[i] = result.address, result.kept
        self.elements = self.f.constant(1)
        for size in self.reduced_sizes:
            self.elements = self.elements * size
        self.rows(0, here)
        return self.f.end()

    def rows(self, d: int, here: _Here) -> None:
        """Loops over the kept dimensions from ``d`` on."""
        f = self.f
        strides = {i: own[d] for i, own in self.kept_strides.items()}
        if d < self.form.kept - 1:
            cursors = {i: Cursor(at, strides[i]) for i, at in here.items()}
            with f.cursor_loop(self.kept_sizes[d], cursors) as (_, inner):
                self.rows(d + 1, inner)
            return
        rows, size = self.form.rows, self.kept_sizes[d]
        blocks = (size + (rows - 1)) // rows
        cursors = {i: Cursor(at, strides[i] * rows) for i, at in here.items()}
        with f.cursor_loop(blocks, cursors) as (number, inner):
            left = size - number * rows
            short = left.ult(rows)
            if self.form.turned:
                # Totals do not depend on each other, so the last rows may be computed twice.
                back = short.select(left - rows, 0)
                moved = {i: at.at(strides[i] * back) for i, at in inner.items()}
                self.block(moved, strides, rows)
                return
            self.block(inner, strides, 1 if rows == 1 else short.select(left, rows))

    def block(self, here: _Here, strides: _Strides, count: IntLike) -> None:
        """``count`` rows side by side."""
        self.totals_of(here, strides, count)
        with self.f.vector_loop(count) as k:
            for i in range(self.count):
                place = self.place(self.count + i, here, strides, k)
                place.store(self.total(i, k).load(self.types[i]))

    def totals_of(self, here: _Here, strides: _Strides, count: IntLike) -> None:
        """The totals of ``count`` rows."""
        with self.f.vector_loop(count) as k:
            for i in range(self.count):
                self.total(i, k).store(self.inits[i])
        with self.f.unless_zero(self.elements):
            self.walk(0, {i: here[i] for i in range(self.count)}, strides, count)

    def walk(self, d: int, here: _Here, strides: _Strides, count: IntLike) -> None:
        """Loops over the reduced dimensions from ``d`` on."""
        if d < self.form.reduced:
            cursors = {i: Cursor(at, self.reduced_strides[i][d]) for i, at in here.items()}
            with self.f.cursor_loop(self.reduced_sizes[d], cursors) as (_, inner):
                self.walk(d + 1, inner, strides, count)
            return
        self.take(here, strides, count)

    def take(self, here: _Here, strides: _Strides, count: IntLike) -> None:
        """The next element of ``count`` rows."""
        with self.f.vector_loop(count) as k:
            totals = [self.total(i, k).load(self.types[i]) for i in range(self.count)]
            elements = [self.element(i, here, strides, k) for i in range(self.count)]
            for i, total in enumerate(self.combined(totals, elements)):
                self.total(i, k).store(total)

    def element(self, i: int, here: _Here, strides: _Strides, k: Int) -> Value:
        element: Value = self.place(i, here, strides, k).load(self.types[i])
        return element

    def combined(self, totals: Sequence[Value], elements: Sequence[Value]) -> list[Value]:
        struct = struct_type(self.form.program)
        return self.f.results(struct, self.count, "combine", *totals, *elements)

    def place(self, i: int, here: _Here, strides: _Strides, k: Int) -> Pointer:
        if k.name == "0":
            return here[i]
        if self.form.packed[i]:
            return here[i].element(self.types[i % self.count], k)
        return here[i].at(k * strides[i])

    def total(self, i: int, k: Int) -> Pointer:
        return self.totals[i].element(self.types[i], k)


class _TurningWriter(ReduceWriter):
    """Elements of neighbouring columns are turned into rows of a buffer, in the nearest cache."""

    def __init__(self, form: ReduceForm, module: Module) -> None:
        super().__init__(form, module)
        room = TILE * form.rows * WORD_BYTES
        self.buffers = {
            i: self.f.array(room, "i8") for i, turned in enumerate(form.turned) if turned
        }

    def walk(self, d: int, here: _Here, strides: _Strides, count: IntLike) -> None:
        f = self.f
        if d < self.form.reduced - 1:
            super().walk(d, here, strides, count)
            return
        size, steps = self.reduced_sizes[d], {i: self.reduced_strides[i][d] for i in here}
        tiles = size // TILE
        cursors = {i: Cursor(at, steps[i] * TILE) for i, at in here.items()}
        with f.unless_zero(tiles), f.cursor_loop(tiles, cursors) as (_, at):
            row = f.constant(self.form.rows * WORD_BYTES)
            for i, buffer in self.buffers.items():
                for first in range(0, self.form.rows, TILE):
                    source = at[i].at(strides[i] * first)
                    f.call("void", "turn", source, strides[i], buffer.at(first * WORD_BYTES), row)
            self.columns(at, steps, strides, TILE, turned=True)
        done = tiles * TILE
        rest = size - done
        with f.unless_zero(rest):
            at = {i: x.at(steps[i] * done) for i, x in here.items()}
            self.columns(at, steps, strides, rest, turned=False)

    def columns(
        self, here: _Here, steps: _Strides, strides: _Strides, count: IntLike, *, turned: bool
    ) -> None:
        """``count`` elements of each row, from the buffers where they are ``turned``."""
        row = self.form.rows * WORD_BYTES
        cursors = {
            i: Cursor(self.buffers[i], row)
            if turned and i in self.buffers
            else Cursor(at, steps[i])
            for i, at in here.items()
        }
        self.from_buffers = turned
        with self.f.cursor_loop(count, cursors) as (_, at):
            self.take(at, strides, self.form.rows)

    def element(self, i: int, here: _Here, strides: _Strides, k: Int) -> Value:
        element: Value
        if i not in self.buffers:
            element = here[i].load(self.types[i])
        elif self.from_buffers:
            element = here[i].element(self.types[i], k).load(self.types[i])
        else:
            element = super().element(i, here, strides, k)
        return element
