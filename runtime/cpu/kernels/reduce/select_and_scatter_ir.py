"""Native code of select-and-scatter: each window keeps one element, to whose place its source element is added.

Lanes lie along a dimension in which windows are one element wide and side by side, such as channels. A block of lanes
is done at a time: for every element of the window whether it is kept, then what is added where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from functools import cache

from runtime.codegen.ir.combine import combining_ir, element_of
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.ir.selection_ir import keeps_ir
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.loop.loop_ir import Step
from runtime.cpu.kernels.reduce.window_ir import SlidingAxis, Word
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


@dataclass(frozen=True, slots=True)
class SelectAxis(SlidingAxis[Word]):
    """Windows over the operand's elements; strides in bytes."""

    operand_stride: Word
    source_stride: Word
    result_stride: Word


@dataclass(frozen=True, slots=True)
class SelectWords:
    """Addresses, lanes (how many, bytes from one to the next in operand, source and result), the other dimensions."""

    operand: int
    source: int
    result: int
    lanes: tuple[int, int, int, int]
    axes: Sequence[SelectAxis[int]]

    def packed(self) -> list[int]:
        words = [self.operand, self.source, self.result, *self.lanes]
        return words + [word for axis in self.axes for word in astuple(axis)]


@cache
def select_and_scatter_code(form: SelectForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(select_and_scatter_ir(form), (FUNCTION,))


def select_and_scatter_ir(form: SelectForm) -> str:
    kind = form.elements.kind
    limits = "declare i64 @llvm.smin.i64(i64, i64)"
    functions = combining_ir(kind.numpy, form.elements.reduction)
    return "\n".join([limits, *functions, keeps_ir(form.elements), _Select(form).function()])


_OPERAND, _SOURCE, _RESULT = range(3)
#: What is done with an element of the window: its number, and where the block's lanes of it begin.
_Visit = Callable[[str, dict[int, str]], None]


class _Select:
    """Writes the function. ``here``: the block's first lane in each array."""

    def __init__(self, form: SelectForm) -> None:
        self.form = form
        self.writer = NestWriter()
        element = element_of(form.elements.kind.numpy)
        self.steps = {_OPERAND: form.operand, _SOURCE: form.source, _RESULT: form.result}
        self.stored, self.wide = element.stored, element.wide
        self.best = self.writer.value(f"alloca [{BLOCK} x {self.wide}], align 64")
        self.kept = self.writer.value(f"alloca [{BLOCK} x i32], align 64")

    def function(self) -> str:
        word = self.writer.next_word
        arrays = {array: word("ptr") for array in (_OPERAND, _SOURCE, _RESULT)}
        self.lanes = word()
        self.lane_strides = {array: word() for array in arrays}
        self.axes = [SelectAxis(*(word() for _ in range(9))) for _ in range(self.form.rank)]
        self.windows([], arrays)
        return self.writer.function(FUNCTION)

    def windows(self, origins: list[str], here: dict[int, str]) -> None:
        """Loops over the windows; origins: where one begins in the operand, of the dimensions around."""
        if len(origins) == self.form.rank:
            self.blocks(origins, here)
            return
        axis, value = self.axes[len(origins)], self.writer.value
        cursors = {_SOURCE: Cursor(here[_SOURCE], axis.source_stride)}
        with self.writer.loop(axis.windows, cursors) as (number, at):
            moved = value(f"mul i64 {number}, {axis.step}")
            origin = value(f"sub i64 {moved}, {axis.padding}")
            self.windows([*origins, origin], {**here, **at})

    def blocks(self, origins: list[str], here: dict[int, str]) -> None:
        writer, value = self.writer, self.writer.value
        above = value(f"add i64 {self.lanes}, {BLOCK - 1}")
        blocks = value(f"udiv i64 {above}, {BLOCK}")
        cursors = {
            array: Cursor(at, value(f"mul i64 {self.lane_strides[array]}, {BLOCK}"))
            for array, at in here.items()
        }
        with writer.loop(blocks, cursors) as (number, at):
            before = value(f"mul i64 {number}, {BLOCK}")
            left = value(f"sub i64 {self.lanes}, {before}")
            self.count = value(f"call i64 @llvm.smin.i64(i64 {left}, i64 {BLOCK})")
            with writer.element_loop(self.count) as k:
                writer.add(f"store i32 -1, ptr {self.slot('i32', self.kept, k)}{INDEPENDENT}")
            self.elements(origins, at, self.select)
            self.elements(origins, at, self.combine)

    def elements(self, origins: list[str], here: dict[int, str], visit: _Visit) -> None:
        """Loops over the elements of the window that are in the operand."""
        value, number, here = self.writer.value, "0", dict(here)
        with ExitStack() as loops:
            for axis, origin in zip(self.axes, origins, strict=True):
                k, _ = loops.enter_context(self.writer.loop(axis.size, {}))
                way = value(f"mul i64 {k}, {axis.dilation}")
                at = value(f"add i64 {origin}, {way}")
                inside = value(f"icmp ult i64 {at}, {axis.base}")
                loops.enter_context(self.writer.when(inside))
                strides = {_OPERAND: axis.operand_stride, _RESULT: axis.result_stride}
                for array, stride in strides.items():
                    here[array] = self.moved(here[array], at, stride)
                before = value(f"mul i64 {number}, {axis.size}")
                number = value(f"add i64 {before}, {k}")
            visit(value(f"trunc i64 {number} to i32"), here)

    def select(self, number: str, here: dict[int, str]) -> None:
        """Write IR that keeps an element if it is the window's first, or if the best one so far does not beat it."""
        writer, value, wide = self.writer, self.writer.value, self.wide
        with writer.element_loop(self.count) as k:
            element = self.element(here, _OPERAND, k)
            best_slot, kept_slot = self.slot(wide, self.best, k), self.slot("i32", self.kept, k)
            best = value(f"load {wide}, ptr {best_slot}{INDEPENDENT}")
            kept = value(f"load i32, ptr {kept_slot}{INDEPENDENT}")
            has_one = value(f"icmp sge i32 {kept}, 0")
            keeps = value(f"call i1 @keeps({wide} {best}, {wide} {element})")
            stays = value(f"and i1 {has_one}, {keeps}")
            best = value(f"select i1 {stays}, {wide} {best}, {wide} {element}")
            kept = value(f"select i1 {stays}, i32 {kept}, i32 {number}")
            writer.add(f"store {wide} {best}, ptr {best_slot}{INDEPENDENT}")
            writer.add(f"store i32 {kept}, ptr {kept_slot}{INDEPENDENT}")

    def combine(self, number: str, here: dict[int, str]) -> None:
        writer, value, wide = self.writer, self.writer.value, self.wide
        repeated = self.form.source is Step.REPEATED
        of_all = self.element(here, _SOURCE, "0") if repeated else None
        with writer.element_loop(self.count) as k:
            kept = value(f"load i32, ptr {self.slot('i32', self.kept, k)}{INDEPENDENT}")
            is_kept = value(f"icmp eq i32 {kept}, {number}")
            update = of_all or self.element(here, _SOURCE, k)
            place = self.place(here, _RESULT, k, wide)
            before = value(f"load {wide}, ptr {place}{INDEPENDENT}")
            after = value(f"call {wide} @combine({wide} {before}, {wide} {update})")
            after = value(f"select i1 {is_kept}, {wide} {after}, {wide} {before}")
            writer.add(f"store {wide} {after}, ptr {place}{INDEPENDENT}")

    def element(self, here: dict[int, str], array: int, k: str) -> str:
        place = self.place(here, array, k, self.stored)
        stored = self.writer.value(f"load {self.stored}, ptr {place}{INDEPENDENT}")
        return self.writer.value(f"call {self.wide} @widen({self.stored} {stored})")

    def place(self, here: dict[int, str], array: int, k: str, kind: str) -> str:
        """Return the address of lane ``k``."""
        if self.steps[array] is Step.PACKED:
            return self.slot(kind, here[array], k)
        return self.moved(here[array], k, self.lane_strides[array])

    def slot(self, kind: str, base: str, k: str) -> str:
        return self.writer.value(f"getelementptr {kind}, ptr {base}, i64 {k}")

    def moved(self, base: str, number: str, stride: str) -> str:
        way = self.writer.value(f"mul i64 {number}, {stride}")
        return self.writer.value(f"getelementptr i8, ptr {base}, i64 {way}")
