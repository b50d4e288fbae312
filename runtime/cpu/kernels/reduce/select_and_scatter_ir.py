"""Native code of select-and-scatter: each window keeps one element, to whose place its source element is added.

Lanes lie along a dimension in which windows are one element wide and side by side, such as channels. A block of lanes
is done at a time: for every element of the window whether it is kept, then what is added where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.combine import combining_ir, element_of
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.selection_ir import keeps_ir
from runtime.codegen.ir.values import Pointer, selected
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.loop.loop_ir import Step
from runtime.cpu.kernels.reduce.window_ir import SlidingAxis
from runtime.program.records.reduce import SelectedElements

FUNCTION = "spmd_select_and_scatter"
#: Lanes that are done together: what is kept of each stays in the nearest cache.
BLOCK = 512


@dataclass(frozen=True, slots=True)
class SelectForm:
    """rank: dimensions besides the lanes'. operand, source, result: how each moves along these."""

    elements: SelectedElements
    rank: int
    operand: Step
    source: Step
    result: Step


@record
class SelectAxis(SlidingAxis):
    """Windows over the operand's elements; strides in bytes."""

    operand_stride: Word
    source_stride: Word
    result_stride: Word


@record
class SelectRecord(Record):
    """Addresses, how many lanes, bytes from one to the next in each array, and the other dimensions."""

    operand: Address
    source: Address
    result: Address
    lanes: Word
    operand_lane: Word
    source_lane: Word
    result_lane: Word
    axes: Sequence[SelectAxis]


@cache
def select_and_scatter_code(form: SelectForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a SelectRecord."""
    return host_jit().compile(select_and_scatter_ir(form), (FUNCTION,))


def select_and_scatter_ir(form: SelectForm) -> str:
    return _Select(form).text()


_OPERAND, _SOURCE, _RESULT = range(3)
_Here: TypeAlias = dict[int, Pointer]
#: What is done with an element of the window: its number, and where the block's lanes of it begin.
_Visit: TypeAlias = Callable[[Int, _Here], None]


class _Select:
    """Writes the function. ``here``: the block's first lane in each array."""

    def __init__(self, form: SelectForm) -> None:
        self.form = form
        kind = form.elements.kind
        functions = combining_ir(kind.numpy, form.elements.reduction)
        module = Module(*functions, keeps_ir(form.elements))
        self.f = FunctionWriter(FUNCTION, SelectRecord, module=module, axes=form.rank)
        element = element_of(kind.numpy)
        self.steps = {_OPERAND: form.operand, _SOURCE: form.source, _RESULT: form.result}
        self.stored, self.wide = element.stored, element.wide
        self.best = self.f.array(BLOCK, self.wide)
        self.kept = self.f.array(BLOCK, "i32")

    def text(self) -> str:
        rec = self.f.record
        here = {_OPERAND: rec.operand, _SOURCE: rec.source, _RESULT: rec.result}
        self.lanes = rec.lanes
        strides = (rec.operand_lane, rec.source_lane, rec.result_lane)
        self.lane_strides: dict[int, Int] = dict(zip(here, strides, strict=True))
        self.axes: list[SelectAxis] = rec.axes
        self.windows([], here)
        return self.f.end()

    def windows(self, origins: list[Int], here: _Here) -> None:
        """Loops over the windows; origins: where one begins in the operand, of the dimensions around."""
        if len(origins) == self.form.rank:
            self.blocks(origins, here)
            return
        axis = self.axes[len(origins)]
        cursors = {_SOURCE: Cursor(here[_SOURCE], axis.source_stride)}
        with self.f.cursor_loop(axis.windows, cursors) as (number, at):
            origin = number * axis.step - axis.padding
            self.windows([*origins, origin], {**here, **at})

    def blocks(self, origins: list[Int], here: _Here) -> None:
        """The lanes of one window, a block at a time."""
        f = self.f
        cursors = {array: Cursor(at, self.lane_strides[array]) for array, at in here.items()}
        with f.blocks(self.lanes, BLOCK, cursors) as (_, self.count, at):
            with f.vector_loop(self.count) as k:
                self.kept.element("i32", k).store(f.constant(-1, "i32"))
            self.elements(origins, at, self.select)
            self.elements(origins, at, self.combine)

    def elements(self, origins: list[Int], here: _Here, visit: _Visit) -> None:
        """Loops over the elements of the window that are in the operand."""
        number, here = self.f.constant(0), dict(here)
        with ExitStack() as loops:
            for axis, origin in zip(self.axes, origins, strict=True):
                k = loops.enter_context(self.f.loop(axis.size))
                at = origin + k * axis.dilation
                loops.enter_context(self.f.when(at.ult(axis.base)))
                here[_OPERAND] = here[_OPERAND].at(at * axis.operand_stride)
                here[_RESULT] = here[_RESULT].at(at * axis.result_stride)
                number = number * axis.size + k
            visit(number.resized("i32"), here)

    def select(self, number: Int, here: _Here) -> None:
        """Write IR that keeps an element if it is the window's first, or if the best one so far does not beat it."""
        f, wide = self.f, self.wide
        with f.vector_loop(self.count) as k:
            element = self.element(here, _OPERAND, k)
            best_slot, kept_slot = self.best.element(wide, k), self.kept.element("i32", k)
            best, kept = best_slot.load(wide), kept_slot.load("i32")
            has_one = kept >= 0
            stays = has_one & f.call("i1", "keeps", best, element)
            best_slot.store(selected(stays, best, element))
            kept_slot.store(selected(stays, kept, number))

    def combine(self, number: Int, here: _Here) -> None:
        f, wide = self.f, self.wide
        repeated = self.form.source is Step.REPEATED
        of_all = self.element(here, _SOURCE, f.constant(0)) if repeated else None
        with f.vector_loop(self.count) as k:
            kept = self.kept.element("i32", k).load("i32")
            is_kept = kept.equals(number)
            update = of_all or self.element(here, _SOURCE, k)
            place = self.place(here, _RESULT, k, wide)
            before = place.load(wide)
            after = f.call(wide, "combine", before, update)
            place.store(selected(is_kept, after, before))

    def element(self, here: _Here, array: int, k: Int) -> Value:
        stored = self.place(here, array, k, self.stored).load(self.stored)
        element: Value = self.f.call(self.wide, "widen", stored)
        return element

    def place(self, here: _Here, array: int, k: Int, kind: str) -> Pointer:
        """Return the address of lane ``k``."""
        if self.steps[array] is Step.PACKED:
            return here[array].element(kind, k)
        return here[array].at(k * self.lane_strides[array])
