"""Native code that takes single elements of an array at the places that indices name: vectors of them at a time.

A gather of this kind waits for memory. Its results go past the caches where they are many, in which there is then more
room for what is taken from.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import cache

from runtime.codegen.ir.dynamic_starts import widened_index
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.cache_lines_ir import IN_ORDER, LINE_BYTES, PAST_CACHES
from spmd.shape import PrimitiveType

FUNCTION = "spmd_take"
#: Results that are collected in the nearest cache before they are stored line by line.
BLOCK = 512
#: What an index may be at most: vectors of addresses are made of a base and signed numbers of 32 bits.
MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class TakeForm:
    """index: the indices' type. byte_size: an element's, 8 at most. streamed: whether results go past the caches."""

    index: PrimitiveType
    byte_size: int
    streamed: bool


@dataclass(frozen=True, slots=True)
class TakeWords:
    """near[k] = far[indices[k]], each index moved to between 0 and ``limit`` <= MOST. All three lie without gaps.

    A streamed result begins with a line.
    """

    far: int
    near: int
    indices: int
    count: int
    limit: int

    def packed(self) -> list[int]:
        return list(astuple(self))


@cache
def take_code(form: TakeForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(take_ir(form), (FUNCTION,))


def take_ir(form: TakeForm) -> str:
    return "\n".join([*_declarations(), _Take(form).function()])


def _declarations() -> list[str]:
    names = [f"{name}.i{bits}" for name in ("smin", "smax") for bits in (32, 64)]
    return [f"declare i{name[-2:]} @llvm.{name}(i{name[-2:]}, i{name[-2:]})" for name in names]


class _Take:
    """Writes the function."""

    def __init__(self, form: TakeForm) -> None:
        self.form = form
        self.writer = NestWriter()
        self.element, self.index = f"i{8 * form.byte_size}", f"i{8 * form.index.byte_size}"

    def function(self) -> str:
        writer, value = self.writer, self.writer.value
        self.far, near, indices = (writer.next_word("ptr") for _ in range(3))
        count = writer.next_word()
        self.limit = writer.next_word()
        if not self.form.streamed:
            self.take(indices, near, count)
            return writer.function(FUNCTION)
        buffer = value(f"alloca [{BLOCK} x {self.element}], align {LINE_BYTES}")
        blocks = value(f"udiv i64 {count}, {BLOCK}")
        cursors = {
            0: Cursor(indices, str(BLOCK * self.form.index.byte_size)),
            1: Cursor(near, str(BLOCK * self.form.byte_size)),
        }
        with writer.unless_zero(blocks), writer.loop(blocks, cursors) as (_, at):
            self.take(at[0], buffer, str(BLOCK))
            self.store_lines(buffer, at[1])
        writer.add(IN_ORDER)
        done = value(f"mul i64 {blocks}, {BLOCK}")
        rest = value(f"sub i64 {count}, {done}")
        with writer.unless_zero(rest):
            index = value(f"getelementptr {self.index}, ptr {indices}, i64 {done}")
            place = value(f"getelementptr {self.element}, ptr {near}, i64 {done}")
            self.take(index, place, rest)
        return writer.function(FUNCTION)

    def take(self, indices: str, target: str, count: str) -> None:
        writer, value = self.writer, self.writer.value
        with writer.element_loop(count) as k:
            place = value(f"getelementptr {self.index}, ptr {indices}, i64 {k}")
            index = value(f"load {self.index}, ptr {place}{INDEPENDENT}")
            # The extension is one of signed numbers, so that addresses are a base and vectors of 32 bits.
            wide = value(f"sext i32 {self.inside(index)} to i64")
            source = value(f"getelementptr {self.element}, ptr {self.far}, i64 {wide}")
            element = value(f"load {self.element}, ptr {source}{INDEPENDENT}")
            place = value(f"getelementptr {self.element}, ptr {target}, i64 {k}")
            writer.add(f"store {self.element} {element}, ptr {place}{INDEPENDENT}")

    def inside(self, index: str) -> str:
        """An index, moved to between 0 and the limit, as an i32."""
        kind, value = self.form.index, self.writer.value
        if (kind.byte_size == 4 and kind.is_signed_integer) or kind.byte_size < 4:
            limit = value(f"trunc i64 {self.limit} to i32")
            if kind.byte_size < 4:
                extend = "sext" if kind.is_signed_integer else "zext"
                index = value(f"{extend} {self.index} {index} to i32")
            above = value(f"call i32 @llvm.smax.i32(i32 {index}, i32 0)")
            return value(f"call i32 @llvm.smin.i32(i32 {above}, i32 {limit})")
        wide = widened_index(self.writer, kind, index)
        above = value(f"call i64 @llvm.smax.i64(i64 {wide}, i64 0)")
        inside = value(f"call i64 @llvm.smin.i64(i64 {above}, i64 {self.limit})")
        return value(f"trunc i64 {inside} to i32")

    def store_lines(self, buffer: str, target: str) -> None:
        value, line = self.writer.value, f"<{LINE_BYTES} x i8>"
        lines = BLOCK * self.form.byte_size // LINE_BYTES
        cursors = {0: Cursor(buffer, str(LINE_BYTES)), 1: Cursor(target, str(LINE_BYTES))}
        with self.writer.loop(str(lines), cursors) as (_, at):
            held = value(f"load {line}, ptr {at[0]}, align {LINE_BYTES}")
            self.writer.add(f"store {line} {held}, ptr {at[1]}, align {LINE_BYTES}{PAST_CACHES}")
