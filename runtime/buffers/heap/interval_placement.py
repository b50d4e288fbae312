"""Native code of the greedy placement of live intervals (runtime/buffers/heap/arena.py).

Buffer assignment tries hundreds of orders of hundreds of intervals. In Python that would take most of the compile time.
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
from runtime.program.argument_record import Record, Word, record, word_count


@record
class PlacedRecord(Record):
    """Record of a placed interval: first byte and end in bytes, first and last position in time."""

    low: Word
    high: Word
    start: Word
    end: Word


@record
class ItemRecord(Record):
    """Record of an interval to place: first and last position in time, size in bytes, alignment (a power of 2)."""

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
    """Return the library of the placement. The first call starts its compilation."""
    ir = DeferredIr(__name__, "placement_ir")
    return host_jit().compile(ir, (_FUNCTION,), passes=Passes.CALL)


def placement_ir() -> str:
    """Return the IR of ``placement_library``."""
    module = Module()
    _add_gap(module)
    _add_insert(module)
    _add_placement(module)
    return module.text()


def _aligned(offset: Int, alignment: Int) -> Int:
    """Return ``offset`` rounded up to a multiple of ``alignment``."""
    return (offset + (alignment - 1)) & -alignment


def _add_gap(module: Module) -> None:
    """Add the function ``gap``(placed, count, start, end, size, alignment, is_first_fit), which returns an offset.

    placed: ``count`` rows by first byte. A gap is between ``below``, the highest end of the lower intervals that are
    live at the same time, and the begin of the next such interval.
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
    """Add the function ``insert``(placed, count, low, high, start, end), which inserts a row by its first byte."""
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
    """Add the exported function (see ``placement``)."""
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
    """Return the function f(placed, count, items, number, is_first_fit, limit, offsets).

    It places ``number`` items in turn until one does not fit below ``limit`` bytes (or NO_LIMIT), and returns the
    number of placed items. placed: address of rows PlacedRecord, of which ``count`` are filled; the items' rows are
    added. items: address of rows ItemRecord. is_first_fit: 1 for the lowest gap, 0 for the smallest. offsets: address
    of ``number`` words, to which the offsets are written.
    """
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    arguments = (pointer, word, pointer, word, word, word, pointer)
    return placement_library().function(_FUNCTION, word, *arguments)
