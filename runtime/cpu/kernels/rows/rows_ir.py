"""Native code of row fusions: passes over the rows of arrays that reduce, and use what they have reduced.

Neighbours in memory are of one row, or of neighbouring rows. In the first case a row is reduced in n sums side by
side, element i in sum i modulo n, which are then added in halves; in the second, ``BLOCK`` rows are reduced side by
side. Either way the order of a sum depends on the sizes alone, on no processor's vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, IntLike, Value
from runtime.codegen.elements.combining import (
    element_combining_ir,
    folding_ir,
    neutral_element,
)
from runtime.codegen.ir.dynamic_starts import Position, moved_to, shifted, starts_ir
from runtime.codegen.ir.element_operations import stored_type, wide_type
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Record
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.loop.loop_ir import Step
from runtime.cpu.kernels.rows.row_variant import BLOCK, Held, Part, PassForm, Ref, RowForm
from spmd.shape import PrimitiveType

FUNCTION = "spmd_rows"


@cache
def row_code(form: RowForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a NestRecord."""
    return host_jit().compile(row_ir(form), (FUNCTION,))


def row_ir(form: RowForm) -> str:
    module = Module(*starts_ir(form.starts))
    for number, each in enumerate(form.passes):
        for name, part in _parts(number, each):
            module.add(program_ir(part.program, name))
    for number, (kind, element_type) in enumerate(form.reductions):
        module.add(element_combining_ir(element_type, kind, f"_reduction{number}"))
        if _folds_as_vector(form, element_type):
            module.add([folding_ir(element_type, kind, form.lanes, f"fold{number}")])
    return _Rows(form, module).text()


def _folds_as_vector(form: RowForm, kind: PrimitiveType) -> bool:
    """Complex numbers are no elements of vectors that LLVM could add."""
    return form.lanes > 1 and not kind.is_complex


def _parts(number: int, each: PassForm) -> list[tuple[str, Part]]:
    return [
        (f"elements{number}", each.elements),
        (f"inits{number}", each.inits),
        (f"rows{number}", each.rows),
    ]


_Here: TypeAlias = Mapping[int, Position]
_Strides: TypeAlias = Mapping[int, Int]


class _Rows:
    """Writes the function. ``here`` is always a cursor per array."""

    def __init__(self, form: RowForm, module: Module) -> None:
        self.form = form
        self.f = FunctionWriter(FUNCTION, Record, module=module)
        self.arrays = range(len(form.arrays))
        self.wides = [wide_type(kind) for _, kind in form.reductions]
        lanes, side = (form.lanes, 1) if form.along_rows else (BLOCK, BLOCK)
        kinds = [kind for _, kind in form.reductions]
        self.sums = [self.f.array(lanes, t) for t in self.wides]
        self.reduced = [self.f.array(side, stored_type(k)) for k in kinds]
        self.row_values = [self.f.array(side, stored_type(k)) for k in form.row_values]

    def text(self) -> str:
        form, next_word = self.form, self.f.next_word
        first: dict[int, Position] = {
            i: next_word("i64" if array.counts else "ptr") for i, array in enumerate(form.arrays)
        }
        self.counted_sizes: list[Int] = [next_word() for _ in range(form.counted)]
        self.reduced_sizes: list[Int] = [next_word() for _ in range(form.reduced)]
        self.counted_strides: dict[int, list[Int]] = {}
        self.reduced_strides: dict[int, list[Int]] = {}
        for i in self.arrays:
            self.counted_strides[i] = [next_word() for _ in range(form.counted)]
            self.reduced_strides[i] = [next_word() for _ in range(form.reduced)]
        start = shifted(self.f, form.starts, first)
        self.row_length = self.reduced_sizes[0]
        for size in self.reduced_sizes[1:]:
            self.row_length = self.row_length * size
        self.rows(0, start)
        return self.f.end()

    def cursors(self, here: _Here, steps: Mapping[int, IntLike]) -> dict[int, Cursor]:
        return {i: Cursor(at, steps[i]) for i, at in here.items()}

    # ---- rows
    def rows(self, d: int, here: _Here) -> None:
        """Loops over the counted dimensions from ``d`` on."""
        form = self.form
        if form.along_rows and d == form.counted:
            self.passes(here, 1)
            return
        cursors = self.cursors(here, {i: own[d] for i, own in self.counted_strides.items()})
        if form.along_rows or d < form.counted - 1:
            with self.f.cursor_loop(self.counted_sizes[d], cursors) as (_, inner):
                self.rows(d + 1, inner)
            return
        with self.f.blocks(self.counted_sizes[d], BLOCK, cursors) as (_, count, inner):
            self.passes(inner, count)

    def passes(self, here: _Here, count: IntLike) -> None:
        """Everything for ``count`` rows side by side."""
        for number, each in enumerate(self.form.passes):
            self.begin_sums(number, each, here, count)
            if each.elements.results:
                used = {ref.number for ref in _array_refs(each.elements)}
                with self.f.unless_zero(self.row_length):
                    self.walk(number, each, 0, {i: here[i] for i in sorted(used)}, count)
            self.end_sums(number, each, here, count)
            if each.rows.results:
                self.compute(f"rows{number}", each.rows, here, self.row_strides(), count)

    def row_strides(self) -> _Strides:
        """From row to row of those side by side; along rows there is only one at a time."""
        if self.form.along_rows:
            return dict.fromkeys(self.arrays, self.f.constant(0))
        return {i: own[-1] for i, own in self.counted_strides.items()}

    # ---- one pass
    def begin_sums(self, number: int, each: PassForm, here: _Here, count: IntLike) -> None:
        """Along rows all lanes start from the neutral element, else from the initial value itself."""
        if not self.form.along_rows and each.inits.results:
            self.compute(f"inits{number}", each.inits, here, self.row_strides(), count)
            return
        for ref in each.inits.results:
            j, (kind, element_type) = ref.number, self.form.reductions[ref.number]
            start = self.f.append(neutral_element(element_type, kind))
            with self.f.vector_loop(self.form.lanes) as k:
                self.sum(j, k).store(Value(self.f, self.wides[j], start))

    def walk(self, number: int, each: PassForm, d: int, here: _Here, count: IntLike) -> None:
        """Loops over the reduced dimensions from ``d`` on."""
        form, f, name, together = self.form, self.f, f"elements{number}", self.form.together
        if not form.along_rows and d == form.reduced:
            self.compute(name, each.elements, here, self.row_strides(), count, together)
            return
        strides = {i: self.reduced_strides[i][d] for i in here}
        if not form.along_rows or d < form.reduced - 1:
            with f.cursor_loop(self.reduced_sizes[d], self.cursors(here, strides)) as (_, inner):
                self.walk(number, each, d + 1, inner, count)
            return
        size, lanes = self.reduced_sizes[d], form.lanes
        if not each.inits.results:
            self.compute(name, each.elements, here, strides, size, together)
            return
        full, rest = size // lanes, size % lanes
        steps = {i: lanes * stride for i, stride in strides.items()}
        chunks = self.cursors(here, steps)
        with f.unless_zero(full), f.cursor_loop(full, chunks) as (_, inner):
            self.compute(name, each.elements, inner, strides, lanes, together)
        with f.unless_zero(rest):
            end = {i: moved_to(at, full * steps[i]) for i, at in here.items()}
            self.compute(name, each.elements, end, strides, rest)

    def end_sums(self, number: int, each: PassForm, here: _Here, count: IntLike) -> None:
        """Sums in the element type: of the lanes and the initial value, or as they are."""
        if self.form.along_rows:
            for ref in each.inits.results:
                self.fold(ref.number)
            if each.inits.results:
                self.compute(f"inits{number}", each.inits, here, self.row_strides(), 1)
        for ref in each.inits.results:
            j, stored = ref.number, stored_type(self.form.reductions[ref.number][1])
            with self.f.vector_loop(count) as k:
                total = self.sum(j, k).load(self.wides[j])
                result = self.f.call(stored, f"narrow_reduction{j}", total)
                self.reduced[j].element(stored, k).store(result)

    def fold(self, j: int) -> None:
        """Halves of the lanes onto each other, in registers: rows would wait for each other's memory."""
        f, t, lanes = self.f, self.wides[j], self.form.lanes
        if _folds_as_vector(self.form, self.form.reductions[j][1]):
            every = self.sums[j].load(f"<{lanes} x {t}>", align=64)
            self.sum(j, f.constant(0)).store(f.call(t, f"fold{j}", every))
            return
        width = lanes // 2
        while width:
            with f.vector_loop(width) as k:
                near, far = self.sum(j, k), self.sum(j, k + width)
                near.store(self.combined(j, near.load(t), far.load(t)))
            width //= 2

    def sum(self, j: int, k: Int) -> Pointer:
        return self.sums[j].element(self.wides[j], k)

    def combined(self, j: int, a: Value, b: Value) -> Value:
        total: Value = self.f.call(self.wides[j], f"combine_reduction{j}", a, b)
        return total

    # ---- elements
    def compute(
        self,
        name: str,
        part: Part,
        here: _Here,
        strides: _Strides,
        count: IntLike,
        together: int = 0,
    ) -> None:
        """``part`` for ``count`` elements that lie ``strides`` apart, so many vectors ``together``."""
        program, f = part.program, self.f
        kinds = program.parameters
        fixed = {
            n: self.read(ref, kinds[n], here, strides, f.constant(0))
            for n, ref in enumerate(part.leaves)
            if self.is_fixed(ref, name)
        }
        with f.vector_loop(count, together) as k:
            elements = [
                fixed.get(n) or self.read(ref, kinds[n], here, strides, k)
                for n, ref in enumerate(part.leaves)
            ]
            results = f.results(struct_type(program), len(part.results), name, *elements)
            for ref, result in zip(part.results, results, strict=True):
                self.write(name, ref, result, here, strides, k)

    def is_fixed(self, ref: Ref, name: str) -> bool:
        """Whether all elements side by side are one: it is read before the loop."""
        if ref.held is Held.ARRAY:
            return self.form.arrays[ref.number].step is Step.REPEATED
        return self.form.along_rows and name.startswith("elements")

    def read(self, ref: Ref, kind: PrimitiveType, here: _Here, strides: _Strides, k: Int) -> Value:
        stored = stored_type(kind)
        if ref.held is Held.ARRAY:
            place = self.place(ref.number, here, strides, k)
            if isinstance(place, Int):
                return place
        else:
            held = self.reduced if ref.held is Held.REDUCTION else self.row_values
            place = held[ref.number].element(stored, k)
        element: Value = place.load(stored)
        return element

    def write(
        self, name: str, ref: Ref, value: Value, here: _Here, strides: _Strides, k: Int
    ) -> None:
        if ref.held is Held.REDUCTION:
            j = ref.number
            own: Value = self.f.call(self.wides[j], f"widen_reduction{j}", value)
            starts, total = name.startswith("inits"), self.sum(j, k)
            if not starts or self.form.along_rows:
                so_far = total.load(self.wides[j])
                own = self.combined(j, *((own, so_far) if starts else (so_far, own)))
            total.store(own)
            return
        if ref.held is Held.ARRAY:
            place = self.place(ref.number, here, strides, k)
            assert isinstance(place, Pointer), "numbers are no results"
        else:
            place = self.row_values[ref.number].element(value.type, k)
        place.store(value)

    def place(self, i: int, here: _Here, strides: _Strides, k: Int) -> Position:
        """Element ``k`` from the cursor of array ``i``."""
        array, place = self.form.arrays[i], here[i]
        if k.name == "0":
            return place
        if array.step is not Step.PACKED:
            return moved_to(place, k * strides[i])
        if isinstance(place, Int):
            return place + k
        return place.element(stored_type(array.kind), k)


def _array_refs(part: Part) -> list[Ref]:
    return [ref for ref in (*part.leaves, *part.results) if ref.held is Held.ARRAY]
