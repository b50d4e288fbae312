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

from runtime.codegen.ir.dynamic_starts import CLAMPS, moved_inside, widened_index
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.ir.reducer import combining
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.cache_lines_ir import IN_ORDER, LINE_BYTES, PAST_CACHES
from runtime.program.scalar_program import Reducer
from spmd.shape import PrimitiveType

FUNCTION = "spmd_indexed"
#: Index vectors whose windows are fetched before their turn, and of each at most so many lines of so many bytes: the
#: processor foresees what follows within a window, but not where the next one begins.
AHEAD = 8
MOST_LINES = 16


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

    packed: whether both arrays have their neighbours along a window's last dimension. lines: of a window to be fetched.
    streamed: whether a packed gather's whole lines are stored past the caches.
    """

    index: PrimitiveType
    elements: Elements
    batch: int
    window: int
    components: int
    packed: bool
    lines: int = 0
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class IndexedWords:
    """One gather or scatter: addresses and strides in bytes.

    batch: (size, stride in indices, in far, in near), slowest first. window: (size, stride in far, in near).
    components of an index vector: (bytes from its first, stride in far, largest start at which a window fits).
    """

    far: int
    near: int
    indices: int
    batch: Sequence[tuple[int, ...]]
    window: Sequence[tuple[int, ...]]
    components: Sequence[tuple[int, int, int]]

    def packed(self) -> list[int]:
        words = [self.far, self.near, self.indices]
        parts = (*self.batch, *self.window, *self.components)
        return words + [word for part in parts for word in part]


@cache
def indexed_code(form: IndexedForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(indexed_ir(form), (FUNCTION,))


def indexed_ir(form: IndexedForm) -> str:
    functions: tuple[str, ...] = ()
    if isinstance(form.elements, CombineElements):
        functions = combining(form.elements.kind, form.elements.reduction).functions
    return "\n".join([*CLAMPS, _PREFETCH, *functions, _Indexed(form).function()])


_PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"

_FAR, _NEAR, _INDICES = range(3)


@dataclass(frozen=True, slots=True)
class _Dimension:
    """``strides`` by array; a window has none in the indices."""

    size: str
    strides: dict[int, str]


@dataclass(frozen=True, slots=True)
class _Component:
    offset: str
    stride: str
    limit: str


class _Indexed:
    """Writes the function. ``here`` is a cursor by array."""

    def __init__(self, form: IndexedForm) -> None:
        self.form = form
        self.writer = NestWriter()
        elements = form.elements
        if isinstance(elements, CombineElements):
            element = combining(elements.kind, elements.reduction)
            self.far, self.near = element.wide, element.stored
            #: Integers below a byte are widened where they lie, in a byte.
            self.in_a_byte = elements.kind.is_integer and elements.kind.bits < 8
        else:
            self.far = self.near = f"i{8 * elements.byte_size}"
        self.gathers = isinstance(elements, GatherElements)

    def function(self) -> str:
        form, word = self.form, self.writer.next_word
        here = {array: word("ptr") for array in (_FAR, _NEAR, _INDICES)}
        batch = [
            _Dimension(word(), {_INDICES: word(), _FAR: word(), _NEAR: word()})
            for _ in range(form.batch)
        ]
        window = [_Dimension(word(), {_FAR: word(), _NEAR: word()}) for _ in range(form.window)]
        self.components = [_Component(word(), word(), word()) for _ in range(form.components)]
        self.vectors(batch, window, here)
        if form.streamed:
            # Such stores become visible in no order, not even before the flag that says that the result is there.
            self.writer.add(IN_ORDER)
        return self.writer.function(FUNCTION)

    def vectors(
        self, batch: list[_Dimension], window: list[_Dimension], here: dict[int, str]
    ) -> None:
        """Loops over the index vectors."""
        if not batch:
            self.placed(window, here)
            return
        first, *rest = batch
        if not rest and not window and self.gathers:
            with self.writer.element_loop(first.size) as k:
                at = {array: self.moved(here[array], k, first.strides[array]) for array in here}
                far = self.window_at(at, INDEPENDENT)
                self.element(far, at[_NEAR], INDEPENDENT)
            return
        cursors = {array: Cursor(here[array], first.strides[array]) for array in here}
        with self.writer.loop(first.size, cursors) as (number, inner):
            if not rest and self.form.lines:
                self.fetch(first, number, here)
            self.vectors(rest, window, inner)

    def fetch(self, batch: _Dimension, number: str, start: dict[int, str]) -> None:
        """The first lines of the window of a vector that comes later, the last one at most."""
        value = self.writer.value
        later = value(f"add i64 {number}, {AHEAD}")
        last = value(f"sub i64 {batch.size}, 1")
        ahead = value(f"call i64 @llvm.smin.i64(i64 {later}, i64 {last})")
        at = {array: self.moved(start[array], ahead, batch.strides[array]) for array in start}
        far = self.window_at(at, "")
        writes = 0 if self.gathers else 1
        for line in range(self.form.lines):
            place = value(f"getelementptr i8, ptr {far}, i64 {line * LINE_BYTES}")
            self.writer.add(f"call void @llvm.prefetch.p0(ptr {place}, i32 {writes}, i32 3, i32 1)")

    def starts_at(self, here: dict[int, str], metadata: str) -> list[str]:
        """The numbers in the vector, as i64."""
        value, kind = self.writer.value, f"i{8 * self.form.index.byte_size}"
        starts = []
        for component in self.components:
            place = value(f"getelementptr i8, ptr {here[_INDICES]}, i64 {component.offset}")
            index = value(f"load {kind}, ptr {place}{metadata}")
            starts.append(widened_index(self.writer, self.form.index, index))
        return starts

    def window_at(self, here: dict[int, str], metadata: str) -> str:
        """Return the begin of the vector's window, clamped so that the window fits."""
        far = here[_FAR]
        for component, start in zip(self.components, self.starts_at(here, metadata), strict=True):
            far = moved_inside(self.writer, far, start, component.limit, component.stride)
        return far

    def placed(self, window: list[_Dimension], here: dict[int, str]) -> None:
        """The window of one vector; a scatter leaves out what does not fit."""
        if self.gathers or not self.components:
            self.elements(window, {_FAR: self.window_at(here, ""), _NEAR: here[_NEAR]})
            return
        value, starts, all_fit = self.writer.value, self.starts_at(here, ""), "true"
        for component, start in zip(self.components, starts, strict=True):
            fits = value(f"icmp ule i64 {start}, {component.limit}")
            all_fit = value(f"and i1 {all_fit}, {fits}")
        with self.writer.when(all_fit):
            far = here[_FAR]
            for component, start in zip(self.components, starts, strict=True):
                far = self.moved(far, start, component.stride)
            self.elements(window, {_FAR: far, _NEAR: here[_NEAR]})

    def elements(self, window: list[_Dimension], here: dict[int, str]) -> None:
        """Loops over the window; its elements have a place each, so that the last dimension makes vectors."""
        if not window:
            self.element(here[_FAR], here[_NEAR], "")
            return
        first, *rest = window
        if rest:
            cursors = {array: Cursor(here[array], first.strides[array]) for array in here}
            with self.writer.loop(first.size, cursors) as (_, inner):
                self.elements(rest, inner)
            return
        if self.form.streamed:
            self.streamed(first, here)
        else:
            self.run(first, here)

    def streamed(self, dimension: _Dimension, here: dict[int, str]) -> None:
        """A packed run, a line at a time past the caches where it consists of whole lines of near."""
        value, elements = self.writer.value, self.form.elements
        assert isinstance(elements, GatherElements)
        size = value(f"mul i64 {dimension.size}, {elements.byte_size}")
        address = value(f"ptrtoint ptr {here[_NEAR]} to i64")
        ends = value(f"or i64 {address}, {size}")
        beyond = value(f"and i64 {ends}, {LINE_BYTES - 1}")
        with self.writer.when(value(f"icmp eq i64 {beyond}, 0")):
            lines = value(f"udiv i64 {size}, {LINE_BYTES}")
            cursors = {array: Cursor(here[array], str(LINE_BYTES)) for array in (_FAR, _NEAR)}
            with self.writer.loop(lines, cursors) as (_, at):
                line = value(f"load <{LINE_BYTES} x i8>, ptr {at[_FAR]}, align 1")
                self.writer.add(
                    f"store <{LINE_BYTES} x i8> {line}, ptr {at[_NEAR]}, align {LINE_BYTES}"
                    f"{PAST_CACHES}"
                )
        with self.writer.when(value(f"icmp ne i64 {beyond}, 0")):
            self.run(dimension, here)

    def run(self, dimension: _Dimension, here: dict[int, str]) -> None:
        """Along a window's last dimension, an element at a time."""
        with self.writer.element_loop(dimension.size) as k:
            if self.form.packed:
                places = {
                    array: self.writer.value(f"getelementptr {kind}, ptr {here[array]}, i64 {k}")
                    for array, kind in ((_FAR, self.far), (_NEAR, self.near))
                }
            else:
                places = {a: self.moved(here[a], k, dimension.strides[a]) for a in here}
            self.element(places[_FAR], places[_NEAR], INDEPENDENT)

    def element(self, far: str, near: str, metadata: str) -> None:
        writer, elements = self.writer, self.form.elements
        if not isinstance(elements, CombineElements):
            align = f", align {min(elements.byte_size, 8)}{metadata}"
            source, target = (far, near) if self.gathers else (near, far)
            value = writer.value(f"load {self.far}, ptr {source}{align}")
            writer.add(f"store {self.far} {value}, ptr {target}{align}")
            return
        so_far = writer.value(f"load {self.far}, ptr {far}{metadata}")
        stored = writer.value(f"load {self.near}, ptr {near}{metadata}")
        update = writer.value(f"call {self.far} @widen({self.near} {stored})")
        if self.in_a_byte:
            so_far = writer.value(f"call {self.far} @widen({self.near} {so_far})")
        pair = f"{self.far} {so_far}, {self.far} {update}"
        total = writer.value(f"call {self.far} @combine({pair})")
        if self.in_a_byte:
            total = writer.value(f"call {self.near} @narrow({self.far} {total})")
        writer.add(f"store {self.far} {total}, ptr {far}{metadata}")

    def moved(self, base: str, number: str, stride: str) -> str:
        way = self.writer.value(f"mul i64 {number}, {stride}")
        return self.writer.value(f"getelementptr i8, ptr {base}, i64 {way}")
