"""Native code of reduce-window: each window's total, a run of neighbouring windows at a time.

For a run of results along the innermost dimension the elements of the window are taken one after the other, each for
all of the run, in totals that stay in the nearest cache. Padding, and gaps in a dilated base, are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Bool, Int
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.reducer import combining
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.scalar_program import Reducer
from spmd.shape import PrimitiveType

FUNCTION = "spmd_window"
#: Results of a run.
BLOCK = 1024


@dataclass(frozen=True, slots=True)
class WindowForm:
    """rank: one at least. slides: the window has more than one element, or an offset, along the innermost dimension.

    dilated: some dimension's base is, but never the innermost one's. packed: whether source (from window to window) and
    target have their neighbours along the innermost dimension.
    """

    kind: PrimitiveType
    reduction: Reducer
    rank: int
    slides: bool
    dilated: bool
    packed: tuple[bool, bool]


@record
class SlidingAxis(Record):
    """One dimension of so many ``windows`` over ``base`` elements.

    Element k of window w is number w * step + k * dilation - padding, if there is one.
    """

    windows: Word
    base: Word
    size: Word
    step: Word
    dilation: Word
    padding: Word


@record
class WindowAxis(SlidingAxis):
    """Strides in bytes. Numbers of elements count the base's gaps, too: multiples of ``base_dilation`` are elements."""

    base_dilation: Word
    source_stride: Word
    target_stride: Word


@record
class WindowRecord(Record):
    """Addresses and dimensions, the innermost last. Neither windows nor their elements are none."""

    source: Address
    init: Address
    target: Address
    axes: Sequence[WindowAxis]


@cache
def window_code(form: WindowForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a WindowRecord."""
    return host_jit().compile(window_ir(form), (FUNCTION,))


def window_ir(form: WindowForm) -> str:
    return _Window(form).text()


class _Window:
    """Writes the function."""

    def __init__(self, form: WindowForm) -> None:
        self.form = form
        element = combining(form.kind, form.reduction)
        self.stored, self.wide = element.stored, element.wide
        module = Module(*element.functions)
        self.f = FunctionWriter(FUNCTION, WindowRecord, module=module, axes=form.rank)
        self.totals = self.f.array(BLOCK, self.wide)

    def text(self) -> str:
        rec = self.f.record
        source, init, target = rec.source, rec.init, rec.target
        self.init = self.f.call(self.wide, "widen", init.load(self.stored))
        self.results(rec.axes, [], source, target)
        return self.f.end()

    def results(
        self, axes: list[WindowAxis], origins: list[Int], source: Pointer, target: Pointer
    ) -> None:
        """Loops over the results; origins: where the window begins in the (dilated) base, of the dimensions around."""
        f, axis = self.f, axes[len(origins)]
        cursors = {0: Cursor(target, axis.target_stride)}
        if len(origins) < len(axes) - 1:
            with f.cursor_loop(axis.windows, cursors) as (number, here):
                origin = number * axis.step - axis.padding
                self.results(axes, [*origins, origin], source, here[0])
            return
        with f.blocks(axis.windows, BLOCK, cursors) as (first, count, here):
            with f.vector_loop(count) as k:
                self.total(k).store(self.init)
            self.elements(axes, origins, source, first, count)
            with f.vector_loop(count) as k:
                result = f.call(self.stored, "narrow", self.total(k).load(self.wide))
                place = self.place(here[0], axis.target_stride, k, packed=self.form.packed[1])
                place.store(result)

    def elements(
        self, axes: list[WindowAxis], origins: list[Int], source: Pointer, first: Int, count: Int
    ) -> None:
        """Loops over the window's elements, each of which is taken for ``count`` results from ``first`` on."""
        with ExitStack() as loops:
            for axis, origin in zip(axes, origins, strict=False):
                k = loops.enter_context(self.f.loop(axis.size))
                at, there = self.base_element(axis, origin, k)
                loops.enter_context(self.f.when(there))
                source = source.at(at * axis.source_stride)
            stride = axes[-1].source_stride
            if self.form.slides:
                self.slide(axes[-1], source, first, count)
            else:
                self.take(source.at(first * stride), stride, self.f.constant(0), count)

    def base_element(self, axis: WindowAxis, origin: Int, k: Int) -> tuple[Int, Bool]:
        """The number of the base's element, and whether there is one."""
        at = origin + k * axis.dilation
        if not self.form.dilated:
            return at, at.ult(axis.base)
        element, rest = at // axis.base_dilation, at % axis.base_dilation
        return element, element.ult(axis.base) & (at >= 0) & rest.equals(0)

    def slide(self, axis: WindowAxis, source: Pointer, first: Int, count: Int) -> None:
        """Along the innermost dimension, too: of element k, the windows that have it in the base."""
        f = self.f
        end = first + count
        with f.loop(axis.size) as k:
            below = axis.padding - k * axis.dilation
            beyond = below + axis.base
            low = self.steps(below, axis).smax(first)
            high = self.steps(beyond, axis).smin(end)
            with f.when(low < high):
                at = low * axis.step - below
                begin = source.at(at * axis.source_stride)
                stride = axis.step * axis.source_stride
                self.take(begin, stride, low - first, high - low)

    def steps(self, distance: Int, axis: WindowAxis) -> Int:
        """The first window that begins ``distance`` or more behind the first one."""
        windows: Int = (distance.smax(0) + (axis.step - 1)) // axis.step
        return windows

    def take(self, begin: Pointer, stride: Int, skipped: Int, count: Int) -> None:
        """Elements from ``begin`` on, ``stride`` apart, for ``count`` totals behind the ``skipped`` ones."""
        f = self.f
        totals = self.totals.element(self.wide, skipped)
        with f.vector_loop(count) as k:
            held = totals.element(self.wide, k)
            total = held.load(self.wide)
            stored = self.place(begin, stride, k, packed=self.form.packed[0]).load(self.stored)
            element = f.call(self.wide, "widen", stored)
            held.store(f.call(self.wide, "combine", total, element))

    def total(self, k: Int) -> Pointer:
        return self.totals.element(self.wide, k)

    def place(self, base: Pointer, stride: Int, k: Int, *, packed: bool) -> Pointer:
        return base.element(self.stored, k) if packed else base.at(k * stride)
