"""Native code of gather and scatter: windows of one array at places that an index array names, and their other side.

The *far* array is the one that is indexed (gather's operand, scatter's result), the *near* array holds the windows one
after the other (gather's result, scatter's updates). Sizes, strides and addresses are words of a record, so that one
code serves all shapes of as many dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.dynamic_starts import inside, widened_index
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.reducer import combining
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.scalar_program import Reducer
from spmd.shape import PrimitiveType

FUNCTION = "spmd_indexed"


@dataclass(frozen=True, slots=True)
class GatherElements:
    """near = far, for elements of ``byte_size``."""

    byte_size: int


@dataclass(frozen=True, slots=True)
class ScatterElements:
    """far = near, for elements of ``byte_size``."""

    byte_size: int


@dataclass(frozen=True, slots=True)
class CombineElements:
    """far = far op near; known reductions combine floats narrower than f32 in f32, which is then far's type."""

    kind: PrimitiveType
    reduction: Reducer


Elements: TypeAlias = GatherElements | ScatterElements | CombineElements


@dataclass(frozen=True, slots=True)
class IndexedForm:
    """batch, window: dimensions over index vectors, and over a window. components: of an index vector.

    packed: whether both arrays have their neighbours along a window's last dimension.
    """

    index: PrimitiveType
    elements: Elements
    batch: int
    window: int
    components: int
    packed: bool


@record
class BatchDimension(Record):
    """Dimension over index vectors: size, and strides in bytes."""

    size: Word
    indices: Word
    far: Word
    near: Word


@record
class WindowDimension(Record):
    """Dimension over a window."""

    size: Word
    far: Word
    near: Word


@record
class Component(Record):
    """Component of an index vector: bytes from its first, stride in far, largest start at which a window fits."""

    offset: Word
    stride: Word
    limit: Word


@record
class IndexedRecord(Record):
    """One gather or scatter: addresses, and dimensions, slowest first."""

    far: Address
    near: Address
    indices: Address
    batch: Sequence[BatchDimension]
    window: Sequence[WindowDimension]
    components: Sequence[Component]


@cache
def indexed_code(form: IndexedForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of an IndexedRecord."""
    return host_jit().compile(indexed_ir(form), (FUNCTION,))


def indexed_ir(form: IndexedForm) -> str:
    return _Indexed(form).text()


_FAR, _NEAR, _INDICES = range(3)
_Here: TypeAlias = dict[int, Pointer]


@dataclass(frozen=True, slots=True)
class _Dimension:
    """``strides`` by array; a window has none in the indices."""

    size: Int
    strides: dict[int, Int]


class _Indexed:
    """Writes the function. ``here`` is a cursor by array."""

    def __init__(self, form: IndexedForm) -> None:
        self.form = form
        module = Module()
        elements = form.elements
        if isinstance(elements, CombineElements):
            element = combining(elements.kind, elements.reduction)
            module.add(element.functions)
            self.far, self.near = element.wide, element.stored
            #: Integers below a byte are widened where they lie, in a byte.
            self.in_a_byte = elements.kind.is_integer and elements.kind.bits < 8
        else:
            self.far = self.near = f"i{8 * elements.byte_size}"
        self.gathers = isinstance(elements, GatherElements)
        self.f = FunctionWriter(
            FUNCTION,
            IndexedRecord,
            module=module,
            batch=form.batch,
            window=form.window,
            components=form.components,
        )

    def text(self) -> str:
        rec = self.f.record
        here = {_FAR: rec.far, _NEAR: rec.near, _INDICES: rec.indices}
        batch = [
            _Dimension(d.size, {_INDICES: d.indices, _FAR: d.far, _NEAR: d.near}) for d in rec.batch
        ]
        window = [_Dimension(d.size, {_FAR: d.far, _NEAR: d.near}) for d in rec.window]
        self.components = [(c.offset, c.stride, c.limit) for c in rec.components]
        self.vectors(batch, window, here)
        return self.f.end()

    def vectors(self, batch: list[_Dimension], window: list[_Dimension], here: _Here) -> None:
        """Loops over the index vectors."""
        if not batch:
            self.placed(window, here)
            return
        first, *rest = batch
        if not rest and not window and self.gathers:
            with self.f.vector_loop(first.size) as k:
                at = self.moved(here, first, k)
                self.element(self.window_at(at), at[_NEAR])
            return
        with self.f.cursor_loop(first.size, self.cursors(here, first)) as (_, inner):
            self.vectors(rest, window, inner)

    def cursors(self, here: _Here, dimension: _Dimension) -> dict[int, Cursor]:
        return {array: Cursor(at, dimension.strides[array]) for array, at in here.items()}

    def moved(self, here: _Here, dimension: _Dimension, number: Int) -> _Here:
        return {array: at.at(number * dimension.strides[array]) for array, at in here.items()}

    def starts_at(self, here: _Here) -> list[Int]:
        """The numbers in the vector, as i64."""
        kind = self.form.index
        return [
            widened_index(kind, here[_INDICES].at(offset).load(f"i{8 * kind.byte_size}"))
            for offset, _, _ in self.components
        ]

    def window_at(self, here: _Here) -> Pointer:
        """Return the begin of the vector's window, clamped so that the window fits."""
        far = here[_FAR]
        for (_, stride, limit), start in zip(self.components, self.starts_at(here), strict=True):
            far = far.at(inside(start, limit) * stride)
        return far

    def placed(self, window: list[_Dimension], here: _Here) -> None:
        """The window of one vector; a scatter leaves out what does not fit."""
        if self.gathers or not self.components:
            self.elements(window, {_FAR: self.window_at(here), _NEAR: here[_NEAR]})
            return
        starts, all_fit = self.starts_at(here), self.f.true()
        for (_, _, limit), start in zip(self.components, starts, strict=True):
            all_fit = all_fit & start.compared("ule", limit)
        with self.f.when(all_fit):
            far = here[_FAR]
            for (_, stride, _), start in zip(self.components, starts, strict=True):
                far = far.at(start * stride)
            self.elements(window, {_FAR: far, _NEAR: here[_NEAR]})

    def elements(self, window: list[_Dimension], here: _Here) -> None:
        """Loops over the window; its elements have a place each, so that the last dimension makes vectors."""
        if not window:
            self.element(here[_FAR], here[_NEAR])
            return
        first, *rest = window
        if rest:
            with self.f.cursor_loop(first.size, self.cursors(here, first)) as (_, inner):
                self.elements(rest, inner)
            return
        self.run(first, here)

    def run(self, dimension: _Dimension, here: _Here) -> None:
        """Along a window's last dimension, an element at a time."""
        with self.f.vector_loop(dimension.size) as k:
            if self.form.packed:
                at = {
                    array: here[array].element(kind, k)
                    for array, kind in ((_FAR, self.far), (_NEAR, self.near))
                }
            else:
                at = self.moved(here, dimension, k)
            self.element(at[_FAR], at[_NEAR])

    def element(self, far: Pointer, near: Pointer) -> None:
        f, elements = self.f, self.form.elements
        if not isinstance(elements, CombineElements):
            align = min(elements.byte_size, 8)
            source, target = (far, near) if self.gathers else (near, far)
            target.store(source.load(self.far, align=align), align=align)
            return
        so_far, stored = far.load(self.far), near.load(self.near)
        update = f.call(self.far, "widen", stored)
        if self.in_a_byte:
            so_far = f.call(self.far, "widen", so_far)
        total = f.call(self.far, "combine", so_far, update)
        if self.in_a_byte:
            total = f.call(self.near, "narrow", total)
        far.store(total)
