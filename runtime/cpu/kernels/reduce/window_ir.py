"""Native code of reduce-window, which computes the totals of a block of adjacent windows at a time.

For a block of results along the innermost dimension, each element of the window is accumulated for the entire block, in
totals that stay in the L1 cache. Padding, and the holes of a dilated base, are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache

from runtime.codegen.elements.builder import Bool, Int
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.reducer import combining
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.reduce.tuning import WINDOW_BLOCK
from runtime.program.argument_record import Address, Record, Word, record
from runtime.program.scalar_program import Reducer
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

FUNCTION = "spmd_window"


@dataclass(frozen=True, slots=True)
class WindowVariant:
    """Variant of the code, of ``rank`` (>= 1) dimensions.

    ``slides`` is False if, along the innermost dimension, window w consists of element w alone. ``dilated`` tells that
    the base of another dimension is dilated; that of the innermost one never is. ``packed`` tells whether source (from
    window to window) and target are contiguous along the innermost dimension.
    """

    kind: PrimitiveType
    reduction: Reducer
    rank: int
    slides: bool
    dilated: bool
    packed: tuple[bool, bool]


@record
class SlidingAxis(Record):
    """Dimension of ``windows`` windows of ``size`` elements over ``base`` elements.

    Element k of window w is element w * step + k * dilation - padding of the base, if that exists.
    """

    windows: Word
    base: Word
    size: Word
    step: Word
    dilation: Word
    padding: Word


@record
class WindowAxis(SlidingAxis):
    """Dimension of a reduce-window, with strides in bytes.

    If ``base_dilation`` is larger than 1, windows cover a base with holes, in which element i is at index i *
    ``base_dilation``.
    """

    base_dilation: Word
    source_stride: Word
    target_stride: Word


@record
class WindowRecord(Record):
    """Record of a reduce-window: addresses and dimensions, the innermost last. No result and no window is empty."""

    source: Address
    init: Address
    target: Address
    axes: Sequence[WindowAxis]


@cache
def window_code(variant: WindowVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a WindowRecord."""
    return host_jit().compile(_Window(variant).text(), (FUNCTION,))


class _Window:
    """Writer of the function."""

    def __init__(self, variant: WindowVariant) -> None:
        self.variant = variant
        element = combining(variant.kind, variant.reduction)
        self.stored, self.wide = element.stored, element.wide
        module = Module(*element.functions)
        self.f = FunctionWriter(FUNCTION, WindowRecord, module=module, axes=variant.rank)
        self.totals = self.f.array(WINDOW_BLOCK, self.wide)

    def text(self) -> str:
        rec = self.f.record
        source, init, target = rec.source, rec.init, rec.target
        self.init = self.f.call(self.wide, "widen", init.load(self.stored))
        self.results(rec.axes, [], source, target)
        return self.f.end()

    def results(
        self, axes: list[WindowAxis], window_starts: list[Int], source: Pointer, target: Pointer
    ) -> None:
        """Write the loops over results, a block of totals at a time along the innermost dimension.

        ``window_starts`` are the windows' first indices in the dilated base along the outer dimensions.
        """
        f, axis = self.f, axes[len(window_starts)]
        cursors = {0: Cursor(target, axis.target_stride)}
        if len(window_starts) < len(axes) - 1:
            with f.cursor_loop(axis.windows, cursors) as (number, here):
                window_start = number * axis.step - axis.padding
                self.results(axes, [*window_starts, window_start], source, here[0])
            return
        with f.blocks(axis.windows, WINDOW_BLOCK, cursors) as (first, count, here):
            with f.vector_loop(count) as k:
                self.total(k).store(self.init)
            self.elements(axes, window_starts, source, first, count)
            with f.vector_loop(count) as k:
                result = f.call(self.stored, "narrow", self.total(k).load(self.wide))
                address = self.element_address(
                    here[0], axis.target_stride, k, packed=self.variant.packed[1]
                )
                address.store(result)

    def elements(
        self,
        axes: list[WindowAxis],
        window_starts: list[Int],
        source: Pointer,
        first: Int,
        count: Int,
    ) -> None:
        """Write the loops over the elements of a window.

        Each element is accumulated for ``count`` results of the innermost dimension, from number ``first`` on.
        """
        with ExitStack() as loops:
            for axis, window_start in zip(axes, window_starts, strict=False):
                k = loops.enter_context(self.f.loop(axis.size))
                at, there = self.base_element(axis, window_start, k)
                loops.enter_context(self.f.when(there))
                source = source.at(at * axis.source_stride)
            stride = axes[-1].source_stride
            if self.variant.slides:
                self.slide(axes[-1], source, first, count)
            else:
                self.accumulate(source.at(first * stride), stride, self.f.constant(0), count)

    def base_element(self, axis: WindowAxis, window_start: Int, k: Int) -> tuple[Int, Bool]:
        """Return the index of the base's element that is element ``k`` of a window, and whether it exists."""
        at = window_start + k * axis.dilation
        if not self.variant.dilated:
            return at, at.ult(axis.base)
        element, rest = at // axis.base_dilation, at % axis.base_dilation
        return element, element.ult(axis.base) & (at >= 0) & rest.equals(0)

    def slide(self, axis: WindowAxis, source: Pointer, first: Int, count: Int) -> None:
        """Write the loop over the window along the innermost dimension.

        Each element of the window is accumulated for all windows of the block in which it is an element of the base.
        """
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
                self.accumulate(begin, stride, low - first, high - low)

    def steps(self, distance: Int, axis: WindowAxis) -> Int:
        """Return the number of the first window that begins at least ``distance`` elements after window 0."""
        windows: Int = (distance.smax(0) + (axis.step - 1)) // axis.step
        return windows

    def accumulate(self, begin: Pointer, stride: Int, skipped: Int, count: Int) -> None:
        """Write the code that accumulates ``count`` elements from ``begin`` on, ``stride`` bytes apart.

        They are accumulated into consecutive totals of the block, after the first ``skipped`` ones.
        """
        f = self.f
        totals = self.totals.element(self.wide, skipped)
        with f.vector_loop(count) as k:
            pointer = totals.element(self.wide, k)
            total = pointer.load(self.wide)
            stored = self.element_address(begin, stride, k, packed=self.variant.packed[0]).load(
                self.stored
            )
            element = f.call(self.wide, "widen", stored)
            pointer.store(f.call(self.wide, "combine", total, element))

    def total(self, k: Int) -> Pointer:
        """Return the address of total number ``k`` of the block, on the stack."""
        return self.totals.element(self.wide, k)

    def element_address(self, base: Pointer, stride: Int, k: Int, *, packed: bool) -> Pointer:
        return base.element(self.stored, k) if packed else base.at(k * stride)
