"""Native code of gather and scatter: windows of an array at offsets that are computed from elements of other arrays.

The *array* is indexed (gather's operand, scatter's result); the *slices* are the windows as an array of their own
(gather's result, scatter's updates). Sizes, strides and addresses are fields of a record, so that one code serves all
shapes of a rank.
"""

from __future__ import annotations

from typing import TypeAlias

from runtime.codegen.elements.builder import Int
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.dynamic_starts import inside
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.index_vectors import index_functions, index_vector
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.reducer import combining
from runtime.codegen.ir.values import Pointer
from runtime.cpu.kernels.gather_scatter.gather_scatter import (
    FUNCTION,
    CombineElements,
    GatherElements,
    IndexedRecord,
    IndexedVariant,
)
from spmd.lazy_dataclass import dataclass


def indexed_ir(variant: IndexedVariant) -> str:
    """Return the IR of ``indexed_code``."""
    return _Indexed(variant).text()


#: Numbers of the arrays: that of leaf n of the index vectors is ``_LEAVES`` + n.
_ARRAY, _SLICES, _LEAVES = range(3)
_Here: TypeAlias = dict[int, Pointer]


@dataclass(frozen=True, slots=True)
class _Dimension:
    """Dimension with its stride in each array in bytes. Dimensions of windows have none in the leaves."""

    size: Int
    strides: dict[int, Int]


class _Indexed:
    """Writer of the function. ``here`` always maps arrays to cursors."""

    def __init__(self, variant: IndexedVariant) -> None:
        self.variant = variant
        module = Module()
        module.add(index_functions(variant.indices))
        elements = variant.elements
        if isinstance(elements, CombineElements):
            element = combining(elements.kind, elements.reduction)
            module.add(element.functions)
            self.array_type, self.slices_type = element.wide, element.stored
            #: Integers below 8 bits are widened in their byte.
            self.in_a_byte = elements.kind.is_integer and elements.kind.bits < 8
        else:
            self.array_type = self.slices_type = f"i{8 * elements.byte_size}"
        self.gathers = isinstance(elements, GatherElements)
        self.f = FunctionWriter(
            FUNCTION,
            IndexedRecord,
            module=module,
            batch=variant.batch,
            window=variant.window,
            components=len(variant.indices.results),
            leaves=len(variant.indices.parameters),
        )

    def text(self) -> str:
        rec = self.f.record
        here = dict(enumerate((rec.array, rec.slices, *rec.leaves)))
        batch = [
            _Dimension(d.size, dict(enumerate((d.array, d.slices, *d.leaves)))) for d in rec.batch
        ]
        window = [_Dimension(d.size, {_ARRAY: d.array, _SLICES: d.slices}) for d in rec.window]
        self.components = [(c.stride, c.limit) for c in rec.components]
        self.vectors(batch, window, here)
        return self.f.end()

    def vectors(self, batch: list[_Dimension], window: list[_Dimension], here: _Here) -> None:
        """Write the loops over the index vectors, of which the last one is vectorized if a gather has no window."""
        if not batch:
            self.placed(window, here)
            return
        first, *rest = batch
        if not rest and not window and self.gathers:
            with self.f.vector_loop(first.size) as k:
                at = self.moved(here, first, k)
                self.element(self.window_at(at), at[_SLICES])
            return
        with self.f.cursor_loop(first.size, self.cursors(here, first)) as (_, inner):
            self.vectors(rest, window, inner)

    def cursors(self, here: _Here, dimension: _Dimension) -> dict[int, Cursor]:
        return {array: Cursor(at, dimension.strides[array]) for array, at in here.items()}

    def moved(self, here: _Here, dimension: _Dimension, number: Int) -> _Here:
        """Return ``here`` moved to index ``number`` of ``dimension``."""
        return {array: at.at(number * dimension.strides[array]) for array, at in here.items()}

    def starts_at(self, here: _Here) -> list[Int]:
        """Return the components of the index vector as i64."""
        program = self.variant.indices
        elements = [
            here[_LEAVES + n].load(stored_type(kind)) for n, kind in enumerate(program.parameters)
        ]
        return index_vector(self.f, program, elements)

    def window_at(self, here: _Here) -> Pointer:
        """Return the address of the window in the array. The starts are clamped so that the window fits."""
        window = here[_ARRAY]
        for (stride, limit), start in zip(self.components, self.starts_at(here), strict=True):
            window = window.at(inside(start, limit) * stride)
        return window

    def placed(self, window: list[_Dimension], here: _Here) -> None:
        """Write the code for the window of one index vector. A scatter skips windows that do not fit."""
        if self.gathers or not self.components:
            self.elements(window, {_ARRAY: self.window_at(here), _SLICES: here[_SLICES]})
            return
        starts, all_fit = self.starts_at(here), self.f.true()
        for (_, limit), start in zip(self.components, starts, strict=True):
            all_fit = all_fit & start.compared("ule", limit)
        with self.f.when(all_fit):
            window_start = here[_ARRAY]
            for (stride, _), start in zip(self.components, starts, strict=True):
                window_start = window_start.at(start * stride)
            self.elements(window, {_ARRAY: window_start, _SLICES: here[_SLICES]})

    def elements(self, window: list[_Dimension], here: _Here) -> None:
        """Write the loops over the window. The last one is vectorized, since the elements of a window are distinct."""
        if not window:
            self.element(here[_ARRAY], here[_SLICES])
            return
        first, *rest = window
        if rest:
            with self.f.cursor_loop(first.size, self.cursors(here, first)) as (_, inner):
                self.elements(rest, inner)
            return
        with self.f.vector_loop(first.size) as k:
            if self.variant.packed:
                at = {
                    array: here[array].element(kind, k)
                    for array, kind in ((_ARRAY, self.array_type), (_SLICES, self.slices_type))
                }
            else:
                at = self.moved(here, first, k)
            self.element(at[_ARRAY], at[_SLICES])

    def element(self, array: Pointer, slices: Pointer) -> None:
        """Write the copy, or the combination, of one element."""
        f, elements = self.f, self.variant.elements
        if not isinstance(elements, CombineElements):
            align = min(elements.byte_size, 8)
            source, target = (array, slices) if self.gathers else (slices, array)
            target.store(source.load(self.array_type, align=align), align=align)
            return
        accumulated, stored = array.load(self.array_type), slices.load(self.slices_type)
        update = f.call(self.array_type, "widen", stored)
        if self.in_a_byte:
            accumulated = f.call(self.array_type, "widen", accumulated)
        total = f.call(self.array_type, "combine", accumulated, update)
        if self.in_a_byte:
            total = f.call(self.slices_type, "narrow", total)
        array.store(total)
