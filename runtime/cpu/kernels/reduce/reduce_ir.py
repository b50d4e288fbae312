"""Native code of a reduction of several arrays at once by a scalar program, such as the one of argmax.

Each total takes one element after the other, reduced dimensions in row-major order, so that any program will do. Totals
of rows side by side are made together: they make vectors, and none waits for another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.copy.transpose_ir import tile_ir
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


@dataclass(frozen=True, slots=True)
class ReduceWords:
    """Sizes and strides (in bytes), the slowest dimension first; no kept size is 0.

    operands: (address, strides along kept and along reduced dimensions). inits: addresses of scalars. results:
    (address, strides along kept dimensions).
    """

    kept: Sequence[int]
    reduced: Sequence[int]
    operands: Sequence[tuple[int, Sequence[int], Sequence[int]]]
    inits: Sequence[int]
    results: Sequence[tuple[int, Sequence[int]]]

    def packed(self) -> list[int]:
        words = [*self.kept, *self.reduced]
        for address, kept, reduced in self.operands:
            words += [address, *kept, *reduced]
        words += self.inits
        for address, kept in self.results:
            words += [address, *kept]
        return words


@cache
def reduce_code(form: ReduceForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(reduce_ir(form), (FUNCTION,))


def reduce_ir(form: ReduceForm) -> str:
    writer = ReduceWriter(form) if not form.turned else _TurningWriter(form)
    turning = [_turning()] if form.turned else []
    return "\n".join(
        [*turning, *dict.fromkeys(program_ir(form.program, "combine")), writer.function()]
    )


class ReduceWriter:
    """Writes the function. ``here`` is a cursor by array: operands, then results."""

    def __init__(self, form: ReduceForm) -> None:
        self.form = form
        self.writer = NestWriter()
        program = form.program
        self.types = [stored_type(program.kind_of(r)) for r in program.results]
        self.count = len(self.types)
        self.totals = [
            self.writer.value(f"alloca [{form.rows} x {kind}], align 64") for kind in self.types
        ]

    def function(self) -> str:
        form, word, value = self.form, self.writer.next_word, self.writer.value
        self.kept_sizes = [word() for _ in range(form.kept)]
        self.reduced_sizes = [word() for _ in range(form.reduced)]
        here: dict[int, str] = {}
        self.kept_strides: dict[int, list[str]] = {}
        self.reduced_strides: dict[int, list[str]] = {}
        for i in range(self.count):
            here[i] = word("ptr")
            self.kept_strides[i] = [word() for _ in range(form.kept)]
            self.reduced_strides[i] = [word() for _ in range(form.reduced)]
        inits = [word("ptr") for _ in range(self.count)]
        self.inits = [
            value(f"load {kind}, ptr {init}") for kind, init in zip(self.types, inits, strict=True)
        ]
        for i in range(self.count, 2 * self.count):
            here[i] = word("ptr")
            self.kept_strides[i] = [word() for _ in range(form.kept)]
        self.elements = "1"
        for size in self.reduced_sizes:
            self.elements = value(f"mul i64 {self.elements}, {size}")
        self.rows(0, here)
        return self.writer.function(FUNCTION)

    def rows(self, d: int, here: dict[int, str]) -> None:
        """Loops over the kept dimensions from ``d`` on."""
        writer, value = self.writer, self.writer.value
        strides = {i: own[d] for i, own in self.kept_strides.items()}
        if d < self.form.kept - 1:
            cursors = {i: Cursor(at, strides[i]) for i, at in here.items()}
            with writer.loop(self.kept_sizes[d], cursors) as (_, inner):
                self.rows(d + 1, inner)
            return
        rows, size = self.form.rows, self.kept_sizes[d]
        above = value(f"add i64 {size}, {rows - 1}")
        blocks = value(f"udiv i64 {above}, {rows}")
        cursors = {i: Cursor(at, value(f"mul i64 {strides[i]}, {rows}")) for i, at in here.items()}
        with writer.loop(blocks, cursors) as (number, inner):
            before = value(f"mul i64 {number}, {rows}")
            left = value(f"sub i64 {size}, {before}")
            short = value(f"icmp ult i64 {left}, {rows}")
            if self.form.turned:
                back = value(f"select i1 {short}, i64 {value(f'sub i64 {left}, {rows}')}, i64 0")
                self.block(self.all_moved(inner, strides, back), strides, str(rows))
                return
            count = "1" if rows == 1 else value(f"select i1 {short}, i64 {left}, i64 {rows}")
            self.block(inner, strides, count)

    def all_moved(self, here: dict[int, str], strides: dict[int, str], by: str) -> dict[int, str]:
        """``by`` rows further: totals do not depend on each other, so the last rows may be computed twice."""
        value = self.writer.value
        return {
            i: self.writer.moved(at, value(f"mul i64 {strides[i]}, {by}"), counts=False)
            for i, at in here.items()
        }

    def block(self, here: dict[int, str], strides: dict[int, str], count: str) -> None:
        """``count`` rows side by side."""
        writer = self.writer
        self.totals_of(here, strides, count)
        with writer.element_loop(count) as k:
            for i in range(self.count):
                place = self.place(self.count + i, here, strides, k)
                writer.add(f"store {self.types[i]} {self.get(i, k)}, ptr {place}{INDEPENDENT}")

    def totals_of(self, here: dict[int, str], strides: dict[int, str], count: str) -> None:
        """The totals of ``count`` rows."""
        with self.writer.element_loop(count) as k:
            for i in range(self.count):
                self.put(i, k, self.inits[i])
        with self.writer.unless_zero(self.elements):
            self.walk(0, {i: here[i] for i in range(self.count)}, strides, count)

    def walk(self, d: int, here: dict[int, str], strides: dict[int, str], count: str) -> None:
        """Loops over the reduced dimensions from ``d`` on."""
        writer = self.writer
        if d < self.form.reduced:
            cursors = {i: Cursor(at, self.reduced_strides[i][d]) for i, at in here.items()}
            with writer.loop(self.reduced_sizes[d], cursors) as (_, inner):
                self.walk(d + 1, inner, strides, count)
            return
        self.take(here, strides, count)

    def take(self, here: dict[int, str], strides: dict[int, str], count: str) -> None:
        """The next element of ``count`` rows."""
        with self.writer.element_loop(count) as k:
            totals = [self.get(i, k) for i in range(self.count)]
            elements = [self.element(i, here, strides, k) for i in range(self.count)]
            for i, total in enumerate(self.combined(totals, elements)):
                self.put(i, k, total)

    def element(self, i: int, here: dict[int, str], strides: dict[int, str], k: str) -> str:
        place = self.place(i, here, strides, k)
        return self.writer.value(f"load {self.types[i]}, ptr {place}{INDEPENDENT}")

    def combined(self, totals: Sequence[str], elements: Sequence[str]) -> list[str]:
        typed = zip(itertools.cycle(self.types), [*totals, *elements], strict=False)
        arguments = ", ".join(f"{kind} {x}" for kind, x in typed)
        struct = struct_type(self.form.program)
        both = self.writer.value(f"call {struct} @combine({arguments})")
        return [self.writer.value(f"extractvalue {struct} {both}, {i}") for i in range(self.count)]

    def place(self, i: int, here: dict[int, str], strides: dict[int, str], k: str) -> str:
        value = self.writer.value
        if k == "0":
            return here[i]
        if self.form.packed[i]:
            return value(f"getelementptr {self.types[i % self.count]}, ptr {here[i]}, i64 {k}")
        way = value(f"mul i64 {k}, {strides[i]}")
        return value(f"getelementptr i8, ptr {here[i]}, i64 {way}")

    def get(self, i: int, k: str) -> str:
        place = self.writer.value(f"getelementptr {self.types[i]}, ptr {self.totals[i]}, i64 {k}")
        return self.writer.value(f"load {self.types[i]}, ptr {place}{INDEPENDENT}")

    def put(self, i: int, k: str, total: str) -> None:
        place = self.writer.value(f"getelementptr {self.types[i]}, ptr {self.totals[i]}, i64 {k}")
        self.writer.add(f"store {self.types[i]} {total}, ptr {place}{INDEPENDENT}")


def _turning() -> str:
    """@turn: 16 words of 16 rows."""
    return tile_ir("turn", TILE, WORD_BYTES, "align 64", "noinline")


class _TurningWriter(ReduceWriter):
    """Elements of neighbouring columns are turned into rows of a buffer, in the nearest cache."""

    def __init__(self, form: ReduceForm) -> None:
        super().__init__(form)
        room = TILE * form.rows * WORD_BYTES
        self.buffers = {
            i: self.writer.value(f"alloca [{room} x i8], align 64")
            for i, turned in enumerate(form.turned)
            if turned
        }

    def walk(self, d: int, here: dict[int, str], strides: dict[int, str], count: str) -> None:
        writer, value = self.writer, self.writer.value
        if d < self.form.reduced - 1:
            super().walk(d, here, strides, count)
            return
        size, steps = self.reduced_sizes[d], {i: self.reduced_strides[i][d] for i in here}
        tiles = value(f"udiv i64 {size}, {TILE}")
        across = {i: value(f"mul i64 {step}, {TILE}") for i, step in steps.items()}
        cursors = {i: Cursor(at, across[i]) for i, at in here.items()}
        with writer.unless_zero(tiles), writer.loop(tiles, cursors) as (_, at):
            for i, buffer in self.buffers.items():
                for first in range(0, self.form.rows, TILE):
                    way = value(f"mul i64 {strides[i]}, {first}")
                    source = value(f"getelementptr i8, ptr {at[i]}, i64 {way}")
                    target = value(f"getelementptr i8, ptr {buffer}, i64 {first * WORD_BYTES}")
                    row = self.form.rows * WORD_BYTES
                    writer.add(
                        f"call void @turn(ptr {source}, i64 {strides[i]}, ptr {target}, i64 {row})"
                    )
            self.columns(at, steps, strides, str(TILE), turned=True)
        done = value(f"mul i64 {tiles}, {TILE}")
        rest = value(f"sub i64 {size}, {done}")
        with writer.unless_zero(rest):
            at = {
                i: writer.moved(x, value(f"mul i64 {steps[i]}, {done}"), counts=False)
                for i, x in here.items()
            }
            self.columns(at, steps, strides, rest, turned=False)

    def columns(
        self,
        here: dict[int, str],
        steps: dict[int, str],
        strides: dict[int, str],
        count: str,
        *,
        turned: bool,
    ) -> None:
        """``count`` elements of each row, from the buffers where they are ``turned``."""
        row = str(self.form.rows * WORD_BYTES)
        cursors = {
            i: Cursor(self.buffers[i], row)
            if turned and i in self.buffers
            else Cursor(at, steps[i])
            for i, at in here.items()
        }
        self.from_buffers = turned
        with self.writer.loop(count, cursors) as (_, at):
            self.take(at, strides, str(self.form.rows))

    def element(self, i: int, here: dict[int, str], strides: dict[int, str], k: str) -> str:
        if i not in self.buffers:
            return self.writer.value(f"load {self.types[i]}, ptr {here[i]}{INDEPENDENT}")
        if not self.from_buffers:
            return super().element(i, here, strides, k)
        place = self.writer.value(f"getelementptr {self.types[i]}, ptr {here[i]}, i64 {k}")
        return self.writer.value(f"load {self.types[i]}, ptr {place}{INDEPENDENT}")
