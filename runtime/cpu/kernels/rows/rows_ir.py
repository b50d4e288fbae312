"""Native code of row fusions: passes over rows that reduce and use the reduced values.

If the innermost loop runs along a row, the row is reduced in n partial sums, element i in sum i modulo n, which are
then added by halves. Otherwise, if adjacent elements belong to adjacent rows or rows are short, ``BLOCK`` rows are
reduced at a time. Either way the order of a sum depends on sizes only, not on the processor's vector width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, IntLike, Value
from runtime.codegen.elements.combining import (
    element_combining_ir,
    folding_ir,
    neutral_element,
)
from runtime.codegen.elements.storage import stored_type, wide_type
from runtime.codegen.ir.dynamic_starts import Position, moved_to, shifted, starts_ir
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
from runtime.cpu.kernels.loop.loop import InnerStride
from runtime.cpu.kernels.rows.rows import (
    BLOCK,
    FUNCTION,
    Part,
    Ref,
    RowPassVariant,
    RowVariant,
    Storage,
)
from runtime.program.argument_record import Record
from spmd.shape import PrimitiveType


def row_ir(variant: RowVariant) -> str:
    """Return the IR of ``row_code``."""
    module = Module(*starts_ir(variant.starts))
    for number, each in enumerate(variant.passes):
        for name, part in _parts(number, each):
            module.add(program_ir(part.program, name))
    for number, (kind, element_type) in enumerate(variant.reductions):
        module.add(element_combining_ir(element_type, kind, f"_reduction{number}"))
        if _folds_as_vector(variant, element_type):
            module.add([folding_ir(element_type, kind, variant.lanes, f"fold{number}")])
    return _Rows(variant, module).text()


def _folds_as_vector(variant: RowVariant, kind: PrimitiveType) -> bool:
    """Return whether lanes are reduced as a vector, which LLVM does not support for complex numbers."""
    return variant.lanes > 1 and not kind.is_complex


def _parts(number: int, each: RowPassVariant) -> list[tuple[str, Part]]:
    """Return the name and the part of each of the three programs of pass ``number``."""
    return [
        (f"elements{number}", each.elements),
        (f"inits{number}", each.inits),
        (f"rows{number}", each.rows),
    ]


_Here: TypeAlias = Mapping[int, Position]
_Strides: TypeAlias = Mapping[int, Int]


class _Rows:
    """Writer of the function. ``here`` always maps the numbers of arrays to cursors."""

    def __init__(self, variant: RowVariant, module: Module) -> None:
        self.variant = variant
        self.f = FunctionWriter(FUNCTION, Record, module=module)
        self.arrays = range(len(variant.arrays))
        self.wides = [wide_type(kind) for _, kind in variant.reductions]
        lanes, side = (variant.lanes, 1) if variant.along_rows else (BLOCK, BLOCK)
        kinds = [kind for _, kind in variant.reductions]
        self.sums = [self.f.array(lanes, t) for t in self.wides]
        self.reduced = [self.f.array(side, stored_type(k)) for k in kinds]
        self.row_values = [self.f.array(side, stored_type(k)) for k in variant.row_values]

    def text(self) -> str:
        variant, next_word = self.variant, self.f.next_word
        first: dict[int, Position] = {
            i: next_word("i64" if array.counts else "ptr") for i, array in enumerate(variant.arrays)
        }
        self.counted_sizes: list[Int] = [next_word() for _ in range(variant.counted)]
        self.reduced_sizes: list[Int] = [next_word() for _ in range(variant.reduced)]
        self.counted_strides: dict[int, list[Int]] = {}
        self.reduced_strides: dict[int, list[Int]] = {}
        for i in self.arrays:
            self.counted_strides[i] = [next_word() for _ in range(variant.counted)]
            self.reduced_strides[i] = [next_word() for _ in range(variant.reduced)]
        start = shifted(self.f, variant.starts, first)
        self.row_length = self.reduced_sizes[0]
        for size in self.reduced_sizes[1:]:
            self.row_length = self.row_length * size
        self.rows(0, start)
        return self.f.end()

    def cursors(self, here: _Here, steps: Mapping[int, IntLike]) -> dict[int, Cursor]:
        return {i: Cursor(at, steps[i]) for i, at in here.items()}

    # ---- rows
    def rows(self, d: int, here: _Here) -> None:
        """Write the loops over the counted dimensions from ``d`` on."""
        variant = self.variant
        if variant.along_rows and d == variant.counted:
            self.passes(here, 1)
            return
        cursors = self.cursors(here, {i: own[d] for i, own in self.counted_strides.items()})
        if variant.along_rows or d < variant.counted - 1:
            with self.f.cursor_loop(self.counted_sizes[d], cursors) as (_, inner):
                self.rows(d + 1, inner)
            return
        with self.f.blocks(self.counted_sizes[d], BLOCK, cursors) as (_, count, inner):
            self.passes(inner, count)

    def passes(self, here: _Here, count: IntLike) -> None:
        """Write all passes for a block of ``count`` rows, which is 1 if the innermost loop runs along a row."""
        for number, each in enumerate(self.variant.passes):
            self.begin_sums(number, each, here, count)
            if each.elements.results:
                used = {ref.number for ref in _array_refs(each.elements)}
                with self.f.unless_zero(self.row_length):
                    self.reduced_loops(number, each, 0, {i: here[i] for i in sorted(used)}, count)
            self.end_sums(number, each, here, count)
            if each.rows.results:
                self.compute(f"rows{number}", each.rows, here, self.row_strides(), count)

    def row_strides(self) -> _Strides:
        """Return the strides between the rows of a block, which are 0 if a block is a single row."""
        if self.variant.along_rows:
            return dict.fromkeys(self.arrays, self.f.constant(0))
        return {i: own[-1] for i, own in self.counted_strides.items()}

    # ---- one pass
    def begin_sums(self, number: int, each: RowPassVariant, here: _Here, count: IntLike) -> None:
        """Write the start of the sums of a pass.

        The lanes of a single row start with the neutral element, the rows of a block with the initial values.
        """
        if not self.variant.along_rows and each.inits.results:
            self.compute(f"inits{number}", each.inits, here, self.row_strides(), count)
            return
        for ref in each.inits.results:
            j, (kind, element_type) = ref.number, self.variant.reductions[ref.number]
            start = self.f.append(neutral_element(element_type, kind))
            with self.f.vector_loop(self.variant.lanes) as k:
                self.sum(j, k).store(Value(self.f, self.wides[j], start))

    def reduced_loops(
        self, number: int, each: RowPassVariant, d: int, here: _Here, count: IntLike
    ) -> None:
        """Write the loops over the reduced dimensions from ``d`` on."""
        variant, f, name = self.variant, self.f, f"elements{number}"
        if not variant.along_rows and d == variant.reduced:
            self.compute(name, each.elements, here, self.row_strides(), count)
            return
        strides = {i: self.reduced_strides[i][d] for i in here}
        if not variant.along_rows or d < variant.reduced - 1:
            with f.cursor_loop(self.reduced_sizes[d], self.cursors(here, strides)) as (_, inner):
                self.reduced_loops(number, each, d + 1, inner, count)
            return
        size, lanes = self.reduced_sizes[d], variant.lanes
        if not each.inits.results:
            self.compute(name, each.elements, here, strides, size)
            return
        full, rest = size // lanes, size % lanes
        steps = {i: lanes * stride for i, stride in strides.items()}
        chunks = self.cursors(here, steps)
        with f.unless_zero(full), f.cursor_loop(full, chunks) as (_, inner):
            self.compute(name, each.elements, inner, strides, lanes)
        with f.unless_zero(rest):
            end = {i: moved_to(at, full * steps[i]) for i, at in here.items()}
            self.compute(name, each.elements, end, strides, rest)

    def end_sums(self, number: int, each: RowPassVariant, here: _Here, count: IntLike) -> None:
        """Write the end of the sums of a pass.

        The lanes of a single row are reduced and combined with the initial value; all sums are rounded to the element
        type.
        """
        if self.variant.along_rows:
            for ref in each.inits.results:
                self.reduce_lanes(ref.number)
            if each.inits.results:
                self.compute(f"inits{number}", each.inits, here, self.row_strides(), 1)
        for ref in each.inits.results:
            j, stored = ref.number, stored_type(self.variant.reductions[ref.number][1])
            with self.f.vector_loop(count) as k:
                total = self.sum(j, k).load(self.wides[j])
                result = self.f.call(stored, f"narrow_reduction{j}", total)
                self.reduced[j].element(stored, k).store(result)

    def reduce_lanes(self, j: int) -> None:
        """Write the reduction of the lanes by halves, in registers; through memory, rows would wait for each other."""
        f, t, lanes = self.f, self.wides[j], self.variant.lanes
        if _folds_as_vector(self.variant, self.variant.reductions[j][1]):
            every = self.sums[j].load(f"<{lanes} x {t}>", align=64)
            self.sum(j, f.constant(0)).store(f.call(t, f"fold{j}", every))
            return
        width = lanes // 2
        while width:
            with f.vector_loop(width) as k:
                low, high = self.sum(j, k), self.sum(j, k + width)
                low.store(self.combined(j, low.load(t), high.load(t)))
            width //= 2

    def sum(self, j: int, k: Int) -> Pointer:
        return self.sums[j].element(self.wides[j], k)

    def combined(self, j: int, a: Value, b: Value) -> Value:
        total: Value = self.f.call(self.wides[j], f"combine_reduction{j}", a, b)
        return total

    # ---- elements
    def compute(
        self, name: str, part: Part, here: _Here, strides: _Strides, count: IntLike
    ) -> None:
        """Write the loop that runs ``part`` for ``count`` elements.

        ``strides`` are those of the arrays in bytes, and ``name`` is the name of the part's function.
        """
        program, f = part.program, self.f
        kinds = program.parameters
        fixed = {
            n: self.read(ref, kinds[n], here, strides, f.constant(0))
            for n, ref in enumerate(part.leaves)
            if self.is_fixed(ref, name)
        }
        with f.vector_loop(count) as k:
            elements = [
                fixed.get(n) or self.read(ref, kinds[n], here, strides, k)
                for n, ref in enumerate(part.leaves)
            ]
            results = f.results(struct_type(program), len(part.results), name, *elements)
            for ref, result in zip(part.results, results, strict=True):
                self.write(name, ref, result, here, strides, k)

    def is_fixed(self, ref: Ref, name: str) -> bool:
        """Return whether the loop reads a single element through ``ref``, which is then loaded before the loop."""
        if ref.storage is Storage.ARRAY:
            return self.variant.arrays[ref.number].step is InnerStride.REPEATED
        return self.variant.along_rows and name.startswith("elements")

    def read(self, ref: Ref, kind: PrimitiveType, here: _Here, strides: _Strides, k: Int) -> Value:
        stored = stored_type(kind)
        if ref.storage is Storage.ARRAY:
            position = self.element_position(ref.number, here, strides, k)
            if isinstance(position, Int):
                return position
        else:
            buffers = self.reduced if ref.storage is Storage.REDUCTION else self.row_values
            position = buffers[ref.number].element(stored, k)
        element: Value = position.load(stored)
        return element

    def write(
        self, name: str, ref: Ref, value: Value, here: _Here, strides: _Strides, k: Int
    ) -> None:
        """Store result ``value`` of round ``k`` at ``ref``.

        An element is accumulated to a sum. An initial value is stored as the sum of a row in a block, and combined with
        the reduced lanes of a single row.
        """
        if ref.storage is Storage.REDUCTION:
            j = ref.number
            own: Value = self.f.call(self.wides[j], f"widen_reduction{j}", value)
            starts, total = name.startswith("inits"), self.sum(j, k)
            if not starts or self.variant.along_rows:
                accumulated = total.load(self.wides[j])
                own = self.combined(j, *((own, accumulated) if starts else (accumulated, own)))
            total.store(own)
            return
        if ref.storage is Storage.ARRAY:
            pointer = self.element_position(ref.number, here, strides, k)
            assert isinstance(pointer, Pointer), "numbers are no results"
        else:
            pointer = self.row_values[ref.number].element(value.type, k)
        pointer.store(value)

    def element_position(self, i: int, here: _Here, strides: _Strides, k: Int) -> Position:
        """Return the position of element ``k`` after the cursor of array ``i``."""
        array, cursor = self.variant.arrays[i], here[i]
        if k.name == "0":
            return cursor
        if array.step is not InnerStride.PACKED:
            return moved_to(cursor, k * strides[i])
        if isinstance(cursor, Int):
            return cursor + k
        return cursor.element(stored_type(array.kind), k)


def _array_refs(part: Part) -> list[Ref]:
    return [ref for ref in (*part.leaves, *part.results) if ref.storage is Storage.ARRAY]
