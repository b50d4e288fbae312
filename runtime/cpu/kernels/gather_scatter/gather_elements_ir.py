"""Native code that gathers single elements of an array by indices, a vector of them at a time.

Such a gather is memory-bound. If its results are many, they use streaming stores, which leaves the caches to the
array.
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

FUNCTION = "spmd_gather_elements"
#: Results that are collected in the L1 cache before they are stored line by line.
BLOCK = 512
#: Largest index: vectors of addresses are a base and signed offsets of 32 bits.
MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ElementGatherVariant:
    """index: the indices' type. byte_size: an element's, 8 at most. streamed: results use streaming stores."""

    index: PrimitiveType
    byte_size: int
    streamed: bool


@record
class ElementGatherRecord(Record):
    """result[k] = array[indices[k]], each index clamped to [0, ``limit``], ``limit`` <= MOST. All three are contiguous.

    A streamed result is aligned to a cache line.
    """

    array: Address
    result: Address
    indices: Address
    count: Word
    limit: Word


@cache
def element_gather_code(variant: ElementGatherVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes the address of an ElementGatherRecord."""
    return host_jit().compile(element_gather_ir(variant), (FUNCTION,))


def element_gather_ir(variant: ElementGatherVariant) -> str:
    return _ElementGather(variant).text()


class _ElementGather:
    """Writer of the function."""

    def __init__(self, variant: ElementGatherVariant) -> None:
        self.variant = variant
        self.f = FunctionWriter(FUNCTION, ElementGatherRecord)
        self.element, self.index = f"i{8 * variant.byte_size}", f"i{8 * variant.index.byte_size}"

    def text(self) -> str:
        f, variant, rec = self.f, self.variant, self.f.record
        self.array, result, indices = rec.array, rec.result, rec.indices
        count, self.limit = rec.count, rec.limit
        if not variant.streamed:
            self.gather(indices, result, count)
            return f.end()
        buffer = f.array(BLOCK, self.element, align=LINE_BYTES)
        blocks = count // BLOCK
        cursors = {
            0: Cursor(indices, BLOCK * variant.index.byte_size),
            1: Cursor(result, BLOCK * variant.byte_size),
        }
        with f.unless_zero(blocks), f.cursor_loop(blocks, cursors) as (_, at):
            self.gather(at[0], buffer, BLOCK)
            store_lines(f, buffer, at[1], BLOCK * variant.byte_size // LINE_BYTES)
        f.add(IN_ORDER)
        done = blocks * BLOCK
        rest = count - done
        with f.unless_zero(rest):
            self.gather(indices.element(self.index, done), result.element(self.element, done), rest)
        return f.end()

    def gather(self, indices: Pointer, target: Pointer, count: IntLike) -> None:
        with self.f.vector_loop(count) as k:
            index = self.inside(indices.element(self.index, k).load(self.index))
            # The extension is one of signed numbers, so that addresses are a base and vectors of 32 bits.
            source = self.array.element(self.element, index.resized("i64", signed=True))
            target.element(self.element, k).store(source.load(self.element))

    def inside(self, index: Int) -> Int:
        """Return ``index``, clamped to [0, limit], as an i32."""
        kind = self.variant.index
        if (kind.byte_size == 4 and kind.is_signed_integer) or kind.byte_size < 4:
            limit = self.limit.resized("i32")
            return inside(index.resized("i32", signed=kind.is_signed_integer), limit)
        return inside(widened_index(kind, index), self.limit).resized("i32")


def store_lines(
    f: FunctionWriter, source: Pointer, target: Pointer, lines: IntLike, align: int = LINE_BYTES
) -> None:
    """Copy ``lines`` lines with streaming stores. align: alignment of the source."""
    line = f"<{LINE_BYTES} x i8>"
    cursors = {0: Cursor(source, LINE_BYTES), 1: Cursor(target, LINE_BYTES)}
    with f.cursor_loop(lines, cursors) as (_, at):
        at[1].store(at[0].load(line, align=align), align=LINE_BYTES, nontemporal=True)
