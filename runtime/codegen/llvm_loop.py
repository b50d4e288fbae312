"""Native code of a loop: a scalar program at every index of a strided space, its innermost dimension vectorized.

Sizes, strides and addresses are words of a record, so that one code serves all shapes. What the code depends on is the
program, the number of dimensions, and how each array moves along the innermost one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.element_operations import stored_type
from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_nest import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.scalar_program import ScalarProgram, program_ir, struct_type

FUNCTION = "spmd_loop"


class Step(Enum):
    """How an array moves along the innermost dimension."""

    PACKED = "packed"
    REPEATED = "repeated"
    STRIDED = "strided"


@dataclass(frozen=True, slots=True)
class LoopForm:
    """leaves, results: how each moves. counted: leaves that are numbers (s64), not memory. rank: at least one."""

    program: ScalarProgram
    rank: int
    leaves: tuple[Step, ...]
    results: tuple[Step, ...]
    counted: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class LoopWords:
    """Starts (addresses, or first numbers) and strides (in bytes, or in ones) of leaves, then of results; sizes.

    The slowest dimension first. Numbers count by ones; nothing is written where a size is 0.
    """

    starts: Sequence[int]
    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]

    def packed(self) -> list[int]:
        words = [*self.starts, *self.sizes]
        for strides in self.strides:
            words += strides
        return words


@cache
def loop_code(form: LoopForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(loop_ir(form), (FUNCTION,), level=2, unroll=False)


def loop_ir(form: LoopForm) -> str:
    program = form.program
    return "\n".join(
        [
            *dict.fromkeys(program_ir(program, "body")),
            _Loop(form).function(),
        ]
    )


class _Loop:
    """Writes the function: a loop per dimension, in each a cursor per array that steps along."""

    def __init__(self, form: LoopForm) -> None:
        self.form = form
        program = form.program
        self.writer = NestWriter()
        kinds = (*program.parameters, *(program.kind_of(r) for r in program.results))
        self.types = [stored_type(kind) for kind in kinds]
        self.steps = (*form.leaves, *form.results)
        self.counted = (*form.counted, *[False] * len(form.results))
        self.inputs = len(form.leaves)
        self.arrays = range(len(kinds))

    def function(self) -> str:
        rank = self.form.rank
        words = itertools.count()
        start = {i: self.word(next(words), self.cursor_type(i)) for i in self.arrays}
        sizes = [self.word(next(words)) for _ in range(rank)]
        strides = {i: [self.word(next(words)) for _ in range(rank)] for i in self.arrays}
        self.nest(0, sizes, start, strides)
        return self.writer.function(FUNCTION)

    def word(self, number: int, kind: str = "i64") -> str:
        place = self.writer.value(f"getelementptr i64, ptr %record, i64 {number}")
        return self.writer.value(f"load {kind}, ptr {place}")

    def cursor_type(self, i: int) -> str:
        return "i64" if self.counted[i] else "ptr"

    def nest(
        self, d: int, sizes: list[str], start: dict[int, str], strides: dict[int, list[str]]
    ) -> None:
        if d == self.form.rank - 1:
            self.row(sizes[d], start, {i: own[d] for i, own in strides.items()})
            return
        cursors = {i: Cursor(start[i], strides[i][d], self.counted[i]) for i in self.arrays}
        with self.writer.loop(sizes[d], cursors) as (_, here):
            self.nest(d + 1, sizes, here, strides)

    def row(self, size: str, start: dict[int, str], stride: dict[int, str]) -> None:
        """The innermost dimension: what is repeated is read before it."""
        writer, elements = self.writer, {}
        repeated = [i for i in range(self.inputs) if self.steps[i] is Step.REPEATED]
        for i in repeated:
            elements[i] = self.read(i, start[i], "")
        with writer.element_loop(size) as k:
            places = {
                i: self.place(i, start[i], stride[i], k) for i in self.arrays if i not in repeated
            }
            for i in range(self.inputs):
                if i not in repeated:
                    elements[i] = self.read(i, places[i], INDEPENDENT)
            struct = struct_type(self.form.program)
            arguments = ", ".join(f"{self.types[i]} {elements[i]}" for i in range(self.inputs))
            values = writer.value(f"call {struct} @body({arguments})")
            results = [
                writer.value(f"extractvalue {struct} {values}, {number}")
                for number in range(len(self.form.results))
            ]
            for number, result in enumerate(results):
                i = self.inputs + number
                writer.add(f"store {self.types[i]} {result}, ptr {places[i]}{INDEPENDENT}")

    def place(self, i: int, row: str, stride: str, k: str) -> str:
        """Element ``k`` of a row."""
        if self.steps[i] is not Step.PACKED:
            way = self.writer.value(f"mul i64 {k}, {stride}")
            return self.writer.moved(row, way, counts=self.counted[i])
        if self.counted[i]:
            return self.writer.value(f"add i64 {row}, {k}")
        return self.writer.value(f"getelementptr {self.types[i]}, ptr {row}, i64 {k}")

    def read(self, i: int, place: str, metadata: str) -> str:
        """An element, of memory or the number itself."""
        if self.counted[i]:
            return place
        return self.writer.value(f"load {self.types[i]}, ptr {place}{metadata}")
