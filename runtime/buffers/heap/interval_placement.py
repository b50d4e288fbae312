"""Native code that places live intervals in bytes, each in a gap that holds it (runtime/buffers/heap/arena.py).

Buffer assignment tries hundreds of orders of hundreds of intervals; in Python that is most of a compilation's time.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.codegen.record import Record, Word, record, word_count


@record
class PlacedRecord(Record):
    """Placed interval: first byte, end in bytes, first and last position in time."""

    low: Word
    high: Word
    start: Word
    end: Word


@record
class ItemRecord(Record):
    """Interval to place: first and last position in time, bytes, alignment (a power of 2)."""

    start: Word
    end: Word
    size: Word
    alignment: Word


PLACED_COLUMNS, ITEM_COLUMNS = word_count(PlacedRecord), word_count(ItemRecord)
_PLACED, _ITEM = (f"[{columns} x i64]" for columns in (PLACED_COLUMNS, ITEM_COLUMNS))

NO_LIMIT = 2**63 - 1

_FUNCTION = "spmd_place"


@cache
def placement_library() -> NativeLibrary:
    """Return the library; its compilation starts at the first call."""
    ir = DeferredIr(__name__, "placement_ir")
    return host_jit().compile(ir, (_FUNCTION,), passes=Passes.CALL)


def placement_ir() -> str:
    module = Module()
    _add_gap(module)
    _add_insert(module)
    _add_placement(module)
    return module.text()


def _aligned(offset: Int, alignment: Int) -> Int:
    return (offset + (alignment - 1)) & -alignment


def _add_gap(module: Module) -> None:
    """Add ``gap``(placed, count, start, end, size, alignment, is_first_fit), which returns an offset.

    placed: rows by first byte, with room for all; ``count`` of them are filled. A gap lies between ``below``, the
    highest end of the lower intervals that live at the same time, and the begin of the next one.
    """
    kinds = ("ptr", *["i64"] * 5, "i1")
    f = internal_function(module, "gap", *kinds, result="i64", attributes="")
    placed, count, start, end, size, alignment, first_fit = f.parameters
    with f.repeat(0, 0, -1, NO_LIMIT) as each:
        i, below, best, tightest = each.values
        each.leave(i.compared("uge", count))
        row = f.view(PlacedRecord, placed.element(_PLACED, i))
        low, high, begin, last = row.low, row.high, row.start, row.end
        following = i + 1
        with f.when((begin <= end) & (last >= start)):
            offset = _aligned(below, alignment)
            width = low - below
            is_better = ((low - offset) >= size) & (width < tightest)
            with f.when(is_better & first_fit):
                f.ret(offset)
            better = is_better.select(offset, best), is_better.select(width, tightest)
            each.again(following, (high > below).select(high, below), *better)
        each.again(following, below, best, tightest)
    f.ret((best >= 0).select(best, _aligned(below, alignment)))
    f.finish()


def _add_insert(module: Module) -> None:
    """Add ``insert``(placed, count, low, high, start, end), which keeps the rows in order."""
    f = internal_function(module, "insert", "ptr", *["i64"] * 5, attributes="")
    placed, count, *columns = f.parameters
    with f.repeat(count) as down:
        (i,) = down.values
        down.leave(i.equals(0))
        before = i - 1
        down.leave(placed.element(_PLACED, before).word() <= columns[0])
        down.again(before)
    row = placed.element(_PLACED, i)
    above, size = row.element(_PLACED, 1), (count - i) * (8 * PLACED_COLUMNS)
    f.add(f"call void @llvm.memmove.p0.p0.i64(ptr {above}, ptr {row}, i64 {size}, i1 false)")
    for n, word in enumerate(columns):
        row.element("i64", n).store(word)
    f.finish()


def _add_placement(module: Module) -> None:
    f = FunctionWriter(
        _FUNCTION,
        module=module,
        parameters=("ptr", "i64", "ptr", "i64", "i64", "i64", "ptr"),
        result="i64",
    )
    placed, count, items, number, first_fit, limit, offsets = f.parameters
    is_first_fit = first_fit.differs(0)
    with f.repeat(0) as each:
        (i,) = each.values
        each.leave(i.compared("uge", number))
        item = f.view(ItemRecord, items.element(_ITEM, i))
        start, end, size, alignment = item.start, item.end, item.size, item.alignment
        there = count + i
        low = f.call("i64", "gap", placed, there, start, end, size, alignment, is_first_fit)
        high = low + size
        each.leave(high > limit)
        f.call("void", "insert", placed, there, low, high, start, end)
        offsets.element("i64", i).store(low)
        each.again(i + 1)
    f.ret(i)
    f.finish()


@cache
def placement() -> Any:
    """Return f(placed, count, items, number, 1 for first fit, limit, offsets) -> number of items that were placed.

    The remaining items found no room below ``limit`` (or NO_LIMIT). Arrays of words are passed by address; ``offsets``
    is written.
    """
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    arguments = (pointer, word, pointer, word, word, word, pointer)
    return placement_library().function(_FUNCTION, word, *arguments)
