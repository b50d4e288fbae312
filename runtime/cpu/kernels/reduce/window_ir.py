"""Native code of reduce-window: each window's total, a run of neighbouring windows at a time.

For a run of results along the innermost dimension the elements of the window are taken one after the other, each for
all of the run, in totals that stay in the nearest cache. Padding, and gaps in a dilated base, are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from functools import cache
from typing import Generic, TypeVar

from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.ir.reducer import combining
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


#: A number, or what it is called in the code.
Word = TypeVar("Word", int, str)


@dataclass(frozen=True, slots=True)
class SlidingAxis(Generic[Word]):
    """One dimension of so many ``windows`` over ``base`` elements.

    Element k of window w is number w * step + k * dilation - padding, if there is one.
    """

    windows: Word
    base: Word
    size: Word
    step: Word
    dilation: Word
    padding: Word


@dataclass(frozen=True, slots=True)
class WindowAxis(SlidingAxis[Word]):
    """Strides in bytes. Numbers of elements count the base's gaps, too: multiples of ``base_dilation`` are elements."""

    base_dilation: Word
    source_stride: Word
    target_stride: Word


@dataclass(frozen=True, slots=True)
class WindowWords:
    """Addresses and dimensions, the innermost last. Neither windows nor their elements are none."""

    source: int
    init: int
    target: int
    axes: Sequence[WindowAxis[int]]

    def packed(self) -> list[int]:
        words = [self.source, self.init, self.target]
        return words + [word for axis in self.axes for word in astuple(axis)]


@cache
def window_code(form: WindowForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(window_ir(form), (FUNCTION,))


def window_ir(form: WindowForm) -> str:
    limits = ["declare i64 @llvm.smax.i64(i64, i64)", "declare i64 @llvm.smin.i64(i64, i64)"]
    functions = combining(form.kind, form.reduction).functions
    return "\n".join([*limits, *functions, _Window(form).function()])


class _Window:
    """Writes the function."""

    def __init__(self, form: WindowForm) -> None:
        self.form = form
        self.writer = NestWriter()
        element = combining(form.kind, form.reduction)
        self.stored, self.wide = element.stored, element.wide
        self.totals = self.writer.value(f"alloca [{BLOCK} x {self.wide}], align 64")

    def function(self) -> str:
        value, word = self.writer.value, self.writer.next_word
        source, init, target = word("ptr"), word("ptr"), word("ptr")
        axes = [WindowAxis(*(word() for _ in range(9))) for _ in range(self.form.rank)]
        stored = value(f"load {self.stored}, ptr {init}")
        self.init = value(f"call {self.wide} @widen({self.stored} {stored})")
        self.results(axes, [], source, target)
        return self.writer.function(FUNCTION)

    def results(
        self, axes: list[WindowAxis[str]], origins: list[str], source: str, target: str
    ) -> None:
        """Loops over the results; origins: where the window begins in the (dilated) base, of the dimensions around."""
        axis = axes[len(origins)]
        writer, value = self.writer, self.writer.value
        if len(origins) < len(axes) - 1:
            cursors = {0: Cursor(target, axis.target_stride)}
            with writer.loop(axis.windows, cursors) as (number, here):
                moved = value(f"mul i64 {number}, {axis.step}")
                origin = value(f"sub i64 {moved}, {axis.padding}")
                self.results(axes, [*origins, origin], source, here[0])
            return
        above = value(f"add i64 {axis.windows}, {BLOCK - 1}")
        blocks = value(f"udiv i64 {above}, {BLOCK}")
        step = value(f"mul i64 {axis.target_stride}, {BLOCK}")
        with writer.loop(blocks, {0: Cursor(target, step)}) as (number, here):
            first = value(f"mul i64 {number}, {BLOCK}")
            left = value(f"sub i64 {axis.windows}, {first}")
            count = value(f"call i64 @llvm.smin.i64(i64 {left}, i64 {BLOCK})")
            with writer.element_loop(count) as k:
                writer.add(f"store {self.wide} {self.init}, ptr {self.total(k)}{INDEPENDENT}")
            self.elements(axes, origins, source, first, count)
            with writer.element_loop(count) as k:
                total = value(f"load {self.wide}, ptr {self.total(k)}{INDEPENDENT}")
                result = value(f"call {self.stored} @narrow({self.wide} {total})")
                place = self.place(here[0], axis.target_stride, k, packed=self.form.packed[1])
                writer.add(f"store {self.stored} {result}, ptr {place}{INDEPENDENT}")

    def elements(
        self, axes: list[WindowAxis[str]], origins: list[str], source: str, first: str, count: str
    ) -> None:
        """Loops over the window's elements, each of which is taken for ``count`` results from ``first`` on."""
        value = self.writer.value
        with ExitStack() as loops:
            for axis, origin in zip(axes, origins, strict=False):
                k, _ = loops.enter_context(self.writer.loop(axis.size, {}))
                at, there = self.base_element(axis, origin, k)
                loops.enter_context(self.writer.when(there))
                way = value(f"mul i64 {at}, {axis.source_stride}")
                source = value(f"getelementptr i8, ptr {source}, i64 {way}")
            if self.form.slides:
                self.slide(axes[-1], source, first, count)
            else:
                way = value(f"mul i64 {first}, {axes[-1].source_stride}")
                begin = value(f"getelementptr i8, ptr {source}, i64 {way}")
                self.take(begin, axes[-1].source_stride, "0", count)

    def base_element(self, axis: WindowAxis[str], origin: str, k: str) -> tuple[str, str]:
        """The number of the base's element, and whether there is one (i1)."""
        value = self.writer.value
        moved = value(f"mul i64 {k}, {axis.dilation}")
        at = value(f"add i64 {origin}, {moved}")
        if not self.form.dilated:
            return at, value(f"icmp ult i64 {at}, {axis.base}")
        element = value(f"udiv i64 {at}, {axis.base_dilation}")
        rest = value(f"urem i64 {at}, {axis.base_dilation}")
        inside = value(f"icmp ult i64 {element}, {axis.base}")
        not_below = value(f"icmp sge i64 {at}, 0")
        whole = value(f"icmp eq i64 {rest}, 0")
        both = value(f"and i1 {inside}, {not_below}")
        return element, value(f"and i1 {both}, {whole}")

    def slide(self, axis: WindowAxis[str], source: str, first: str, count: str) -> None:
        """Along the innermost dimension, too: of element k, the windows that have it in the base."""
        writer, value = self.writer, self.writer.value
        end = value(f"add i64 {first}, {count}")
        with writer.loop(axis.size, {}) as (k, _):
            moved = value(f"mul i64 {k}, {axis.dilation}")
            below = value(f"sub i64 {axis.padding}, {moved}")
            beyond = value(f"add i64 {below}, {axis.base}")
            low = value(f"call i64 @llvm.smax.i64(i64 {self.steps(below, axis)}, i64 {first})")
            high = value(f"call i64 @llvm.smin.i64(i64 {self.steps(beyond, axis)}, i64 {end})")
            with writer.when(value(f"icmp slt i64 {low}, {high}")):
                window = value(f"mul i64 {low}, {axis.step}")
                at = value(f"sub i64 {window}, {below}")
                way = value(f"mul i64 {at}, {axis.source_stride}")
                begin = value(f"getelementptr i8, ptr {source}, i64 {way}")
                stride = value(f"mul i64 {axis.step}, {axis.source_stride}")
                skipped = value(f"sub i64 {low}, {first}")
                self.take(begin, stride, skipped, value(f"sub i64 {high}, {low}"))

    def steps(self, distance: str, axis: WindowAxis[str]) -> str:
        """The first window that begins ``distance`` or more behind the first one."""
        value = self.writer.value
        ahead = value(f"call i64 @llvm.smax.i64(i64 {distance}, i64 0)")
        less = value(f"sub i64 {axis.step}, 1")
        above = value(f"add i64 {ahead}, {less}")
        return value(f"udiv i64 {above}, {axis.step}")

    def take(self, begin: str, stride: str, skipped: str, count: str) -> None:
        """Elements from ``begin`` on, ``stride`` apart, for ``count`` totals behind the ``skipped`` ones."""
        writer, value = self.writer, self.writer.value
        totals = value(f"getelementptr {self.wide}, ptr {self.totals}, i64 {skipped}")
        with writer.element_loop(count) as k:
            held = value(f"getelementptr {self.wide}, ptr {totals}, i64 {k}")
            total = value(f"load {self.wide}, ptr {held}{INDEPENDENT}")
            place = self.place(begin, stride, k, packed=self.form.packed[0])
            stored = value(f"load {self.stored}, ptr {place}{INDEPENDENT}")
            element = value(f"call {self.wide} @widen({self.stored} {stored})")
            sum_ = value(f"call {self.wide} @combine({self.wide} {total}, {self.wide} {element})")
            writer.add(f"store {self.wide} {sum_}, ptr {held}{INDEPENDENT}")

    def total(self, k: str) -> str:
        return self.writer.value(f"getelementptr {self.wide}, ptr {self.totals}, i64 {k}")

    def place(self, base: str, stride: str, k: str, *, packed: bool) -> str:
        if packed:
            return self.writer.value(f"getelementptr {self.stored}, ptr {base}, i64 {k}")
        way = self.writer.value(f"mul i64 {k}, {stride}")
        return self.writer.value(f"getelementptr i8, ptr {base}, i64 {way}")
