"""Native code that takes single elements of an array at the places that indices name: vectors of them at a time.

A gather of this kind waits for memory. Its results go past the caches where they are many, in which there is then more
room for what is taken from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.dynamic_starts import inside, widened_index
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.cache_lines_ir import IN_ORDER, LINE_BYTES
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


@record
class TakeRecord(Record):
    """near[k] = far[indices[k]], each index moved to between 0 and ``limit`` <= MOST. All three lie without gaps.

    A streamed result begins with a line.
    """

    far: Address
    near: Address
    indices: Address
    count: Word
    limit: Word


@cache
def take_code(form: TakeForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a TakeRecord."""
    return host_jit().compile(take_ir(form), (FUNCTION,))


def take_ir(form: TakeForm) -> str:
    return _Take(form).text()


class _Take:
    """Writes the function."""

    def __init__(self, form: TakeForm) -> None:
        self.form = form
        self.f = FunctionWriter(FUNCTION, TakeRecord)
        self.element, self.index = f"i{8 * form.byte_size}", f"i{8 * form.index.byte_size}"

    def text(self) -> str:
        f, form, rec = self.f, self.form, self.f.record
        self.far, near, indices = rec.far, rec.near, rec.indices
        count, self.limit = rec.count, rec.limit
        if not form.streamed:
            self.take(indices, near, count)
            return f.end()
        buffer = f.array(BLOCK, self.element, align=LINE_BYTES)
        blocks = count // BLOCK
        cursors = {
            0: Cursor(indices, BLOCK * form.index.byte_size),
            1: Cursor(near, BLOCK * form.byte_size),
        }
        with f.unless_zero(blocks), f.cursor_loop(blocks, cursors) as (_, at):
            self.take(at[0], buffer, BLOCK)
            store_lines(f, buffer, at[1], BLOCK * form.byte_size // LINE_BYTES)
        f.add(IN_ORDER)
        done = blocks * BLOCK
        rest = count - done
        with f.unless_zero(rest):
            self.take(indices.element(self.index, done), near.element(self.element, done), rest)
        return f.end()

    def take(self, indices: Pointer, target: Pointer, count: IntLike) -> None:
        with self.f.vector_loop(count) as k:
            index = self.inside(indices.element(self.index, k).load(self.index))
            # The extension is one of signed numbers, so that addresses are a base and vectors of 32 bits.
            source = self.far.element(self.element, index.resized("i64", signed=True))
            target.element(self.element, k).store(source.load(self.element))

    def inside(self, index: Int) -> Int:
        """An index, moved to between 0 and the limit, as an i32."""
        kind = self.form.index
        if (kind.byte_size == 4 and kind.is_signed_integer) or kind.byte_size < 4:
            limit = self.limit.resized("i32")
            return inside(index.resized("i32", signed=kind.is_signed_integer), limit)
        return inside(widened_index(kind, index), self.limit).resized("i32")


def store_lines(
    f: FunctionWriter, source: Pointer, target: Pointer, lines: IntLike, align: int = LINE_BYTES
) -> None:
    """Copy ``lines`` lines past the caches. align: of the source."""
    line = f"<{LINE_BYTES} x i8>"
    cursors = {0: Cursor(source, LINE_BYTES), 1: Cursor(target, LINE_BYTES)}
    with f.cursor_loop(lines, cursors) as (_, at):
        at[1].store(at[0].load(line, align=align), align=LINE_BYTES, nontemporal=True)
