"""Native code of select-and-scatter: a window selects an element, with whose result its source element is combined.

Vector lanes are along a dimension in which windows are single elements, such as channels. For a block of lanes, a first
loop over the window selects an element, and a second loop combines the source element with the result of the selected
element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.combine import combining_ir, element_of
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.selection_ir import keeps_ir
from runtime.codegen.ir.values import Pointer, selected
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.loop.loop import InnerStride
from runtime.cpu.kernels.reduce.tuning import SELECT_BLOCK
from runtime.cpu.kernels.reduce.window_ir import SlidingAxis
from runtime.program.argument_record import Address, Record, Word, record
from runtime.program.records.reduce import SelectedElements
from spmd.lazy_dataclass import dataclass

FUNCTION = "spmd_select_and_scatter"


@dataclass(frozen=True, slots=True)
class SelectVariant:
    """Variant of the code. ``rank`` is the number of dimensions without that of the lanes.

    ``operand``, ``source`` and ``result`` are the kinds of the arrays' strides along the lanes.
    """

    elements: SelectedElements
    rank: int
    operand: InnerStride
    source: InnerStride
    result: InnerStride


@record
class SelectAxis(SlidingAxis):
    """Dimension of windows over the operand's elements, with the strides of the three arrays in bytes."""

    operand_stride: Word
    source_stride: Word
    result_stride: Word


@record
class SelectRecord(Record):
    """Record: addresses, the number of lanes, the strides between lanes in bytes, and the other dimensions."""

    operand: Address
    source: Address
    result: Address
    lanes: Word
    operand_lane: Word
    source_lane: Word
    result_lane: Word
    axes: Sequence[SelectAxis]


@cache
def select_and_scatter_code(variant: SelectVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a SelectRecord."""
    return host_jit().compile(_Select(variant).text(), (FUNCTION,))


_OPERAND, _SOURCE, _RESULT = range(3)
_Here: TypeAlias = dict[int, Pointer]
#: Callback for an element of the window. It takes the element's number and the addresses of its first lane.
_Visit: TypeAlias = Callable[[Int, _Here], None]


class _Select:
    """Writer of the function. ``here`` always maps arrays to the address of the block's first lane."""

    def __init__(self, variant: SelectVariant) -> None:
        self.variant = variant
        kind = variant.elements.kind
        functions = combining_ir(kind.numpy, variant.elements.reduction)
        module = Module(*functions, keeps_ir(variant.elements))
        self.f = FunctionWriter(FUNCTION, SelectRecord, module=module, axes=variant.rank)
        element = element_of(kind.numpy)
        self.steps = {_OPERAND: variant.operand, _SOURCE: variant.source, _RESULT: variant.result}
        self.stored, self.wide = element.stored, element.wide
        self.best = self.f.array(SELECT_BLOCK, self.wide)
        self.chosen = self.f.array(SELECT_BLOCK, "i32")

    def text(self) -> str:
        rec = self.f.record
        here = {_OPERAND: rec.operand, _SOURCE: rec.source, _RESULT: rec.result}
        self.lanes = rec.lanes
        strides = (rec.operand_lane, rec.source_lane, rec.result_lane)
        self.lane_strides: dict[int, Int] = dict(zip(here, strides, strict=True))
        self.axes: list[SelectAxis] = rec.axes
        self.windows([], here)
        return self.f.end()

    def windows(self, window_starts: list[Int], here: _Here) -> None:
        """Write the loops over windows.

        ``window_starts`` are the window's first indices in the operand along the dimensions whose loops are open.
        """
        if len(window_starts) == self.variant.rank:
            self.blocks(window_starts, here)
            return
        axis = self.axes[len(window_starts)]
        cursors = {_SOURCE: Cursor(here[_SOURCE], axis.source_stride)}
        with self.f.cursor_loop(axis.windows, cursors) as (number, at):
            window_start = number * axis.step - axis.padding
            self.windows([*window_starts, window_start], {**here, **at})

    def blocks(self, window_starts: list[Int], here: _Here) -> None:
        """Write the loop over the blocks of lanes of one window."""
        f = self.f
        cursors = {array: Cursor(at, self.lane_strides[array]) for array, at in here.items()}
        with f.blocks(self.lanes, SELECT_BLOCK, cursors) as (_, self.count, at):
            with f.vector_loop(self.count) as k:
                self.chosen.element("i32", k).store(f.constant(-1, "i32"))
            self.elements(window_starts, at, self.select)
            self.elements(window_starts, at, self.combine)

    def elements(self, window_starts: list[Int], here: _Here, visit: _Visit) -> None:
        """Write the loops over the elements of the window that are inside the operand.

        ``visit`` writes the code for an element, given its row-major number in the window and its addresses.
        """
        number, here = self.f.constant(0), dict(here)
        with ExitStack() as loops:
            for axis, window_start in zip(self.axes, window_starts, strict=True):
                k = loops.enter_context(self.f.loop(axis.size))
                at = window_start + k * axis.dilation
                loops.enter_context(self.f.when(at.ult(axis.base)))
                here[_OPERAND] = here[_OPERAND].at(at * axis.operand_stride)
                here[_RESULT] = here[_RESULT].at(at * axis.result_stride)
                number = number * axis.size + k
            visit(number.resized("i32"), here)

    def select(self, number: Int, here: _Here) -> None:
        """Write the code that selects element ``number`` unless a selected one is kept in comparison with it."""
        f, wide = self.f, self.wide
        with f.vector_loop(self.count) as k:
            element = self.element(here, _OPERAND, k)
            best_pointer, chosen_pointer = self.best.element(wide, k), self.chosen.element("i32", k)
            best, chosen = best_pointer.load(wide), chosen_pointer.load("i32")
            has_one = chosen >= 0
            stays = has_one & f.call("i1", "keeps", best, element)
            best_pointer.store(selected(stays, best, element))
            chosen_pointer.store(selected(stays, chosen, number))

    def combine(self, number: Int, here: _Here) -> None:
        """Write the code that combines the source element with the result of element ``number`` if it is selected."""
        f, wide = self.f, self.wide
        repeated = self.variant.source is InnerStride.REPEATED
        of_all = self.element(here, _SOURCE, f.constant(0)) if repeated else None
        with f.vector_loop(self.count) as k:
            chosen = self.chosen.element("i32", k).load("i32")
            is_chosen = chosen.equals(number)
            update = of_all or self.element(here, _SOURCE, k)
            pointer = self.element_address(here, _RESULT, k, wide)
            before = pointer.load(wide)
            after = f.call(wide, "combine", before, update)
            pointer.store(selected(is_chosen, after, before))

    def element(self, here: _Here, array: int, k: Int) -> Value:
        """Load the element of lane ``k`` of ``array`` and widen it."""
        stored = self.element_address(here, array, k, self.stored).load(self.stored)
        element: Value = self.f.call(self.wide, "widen", stored)
        return element

    def element_address(self, here: _Here, array: int, k: Int, kind: str) -> Pointer:
        """Return the address of lane ``k`` of ``array``, whose elements have the LLVM type ``kind``."""
        if self.steps[array] is InnerStride.PACKED:
            return here[array].element(kind, k)
        return here[array].at(k * self.lane_strides[array])
