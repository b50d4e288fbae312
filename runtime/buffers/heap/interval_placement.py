"""Native code that places live intervals in bytes, each in a gap that holds it (runtime/buffers/heap/arena.py).

Buffer assignment tries hundreds of orders of hundreds of intervals; in Python that is most of a compilation's time.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from runtime.codegen.ir.record_words import WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes

PLACED_WORDS = 4
"""Words of a placed interval: first byte, end in bytes, first and last position in time."""

ITEM_WORDS = 4
"""Words of an interval to place: first and last position in time, bytes, alignment (a power of 2)."""

NO_LIMIT = 2**63 - 1

_FUNCTION = "spmd_place"

# placed: rows by first byte, with room for all; ``count`` of them are filled. A gap lies between
# ``below``, the highest end of the lower intervals that live at the same time, and the begin of the
# next one.
_IR = f"""
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @aligned(i64 %offset, i64 %alignment) alwaysinline {{
  %mask = sub i64 %alignment, 1
  %over = add i64 %offset, %mask
  %negative = sub i64 0, %alignment
  %result = and i64 %over, %negative
  ret i64 %result
}}

define internal i64 @gap(ptr %placed, i64 %count, i64 %start, i64 %end, i64 %size, i64 %alignment, i1 %first_fit) {{
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_next, %go_on ]
  %below = phi i64 [ 0, %entry ], [ %below_now, %go_on ]
  %best = phi i64 [ -1, %entry ], [ %best_now, %go_on ]
  %tightest = phi i64 [ {NO_LIMIT}, %entry ], [ %tightest_now, %go_on ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %over
look:
  %row = getelementptr [{PLACED_WORDS} x i64], ptr %placed, i64 %i
  %low = call i64 @word(ptr %row, i64 0)
  %high = call i64 @word(ptr %row, i64 1)
  %begin = call i64 @word(ptr %row, i64 2)
  %last = call i64 @word(ptr %row, i64 3)
  %has_begun = icmp sle i64 %begin, %end
  %has_not_ended = icmp sge i64 %last, %start
  %together = and i1 %has_begun, %has_not_ended
  br i1 %together, label %measure, label %go_on
measure:
  %offset = call i64 @aligned(i64 %below, i64 %alignment)
  %room = sub i64 %low, %offset
  %holds = icmp sge i64 %room, %size
  %width = sub i64 %low, %below
  %is_tighter = icmp slt i64 %width, %tightest
  %is_better = and i1 %holds, %is_tighter
  %taken = and i1 %is_better, %first_fit
  br i1 %taken, label %found, label %compare
compare:
  %best_here = select i1 %is_better, i64 %offset, i64 %best
  %tightest_here = select i1 %is_better, i64 %width, i64 %tightest
  %is_higher = icmp sgt i64 %high, %below
  %below_here = select i1 %is_higher, i64 %high, i64 %below
  br label %go_on
go_on:
  %below_now = phi i64 [ %below, %look ], [ %below_here, %compare ]
  %best_now = phi i64 [ %best, %look ], [ %best_here, %compare ]
  %tightest_now = phi i64 [ %tightest, %look ], [ %tightest_here, %compare ]
  %i_next = add i64 %i, 1
  br label %next
found:
  ret i64 %offset
over:
  %has_gap = icmp sge i64 %best, 0
  %above = call i64 @aligned(i64 %below, i64 %alignment)
  %result = select i1 %has_gap, i64 %best, i64 %above
  ret i64 %result
}}

define internal void @insert(ptr %placed, i64 %count, i64 %low, i64 %high, i64 %start, i64 %end) {{
entry:
  br label %down
down:
  %i = phi i64 [ %count, %entry ], [ %before, %one ]
  %more = icmp ugt i64 %i, 0
  br i1 %more, label %one, label %here
one:
  %before = sub i64 %i, 1
  %row = getelementptr [{PLACED_WORDS} x i64], ptr %placed, i64 %before
  %its_low = load i64, ptr %row
  %is_above = icmp sgt i64 %its_low, %low
  br i1 %is_above, label %down, label %here
here:
  %place = phi i64 [ 0, %down ], [ %i, %one ]
  %slot = getelementptr [{PLACED_WORDS} x i64], ptr %placed, i64 %place
  %up = getelementptr [{PLACED_WORDS} x i64], ptr %slot, i64 1
  %rows = sub i64 %count, %place
  %bytes = mul i64 %rows, {8 * PLACED_WORDS}
  call void @llvm.memmove.p0.p0.i64(ptr %up, ptr %slot, i64 %bytes, i1 false)
  store i64 %low, ptr %slot
  %high_slot = getelementptr i64, ptr %slot, i64 1
  store i64 %high, ptr %high_slot
  %start_slot = getelementptr i64, ptr %slot, i64 2
  store i64 %start, ptr %start_slot
  %end_slot = getelementptr i64, ptr %slot, i64 3
  store i64 %end, ptr %end_slot
  ret void
}}

define i64 @{_FUNCTION}(ptr %placed, i64 %count, ptr %items, i64 %number, i64 %first_fit, i64 %limit, ptr %offsets) {{
entry:
  %is_first_fit = icmp ne i64 %first_fit, 0
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_next, %place ]
  %more = icmp ult i64 %i, %number
  br i1 %more, label %item, label %end_of_items
item:
  %row = getelementptr [{ITEM_WORDS} x i64], ptr %items, i64 %i
  %start = call i64 @word(ptr %row, i64 0)
  %end = call i64 @word(ptr %row, i64 1)
  %size = call i64 @word(ptr %row, i64 2)
  %alignment = call i64 @word(ptr %row, i64 3)
  %there = add i64 %count, %i
  %low = call i64 @gap(ptr %placed, i64 %there, i64 %start, i64 %end, i64 %size, i64 %alignment, i1 %is_first_fit)
  %high = add i64 %low, %size
  %is_out = icmp sgt i64 %high, %limit
  br i1 %is_out, label %end_of_items, label %place
place:
  call void @insert(ptr %placed, i64 %there, i64 %low, i64 %high, i64 %start, i64 %end)
  %offset_slot = getelementptr i64, ptr %offsets, i64 %i
  store i64 %low, ptr %offset_slot
  %i_next = add i64 %i, 1
  br label %next
end_of_items:
  ret i64 %i
}}
"""


@cache
def placement_library() -> NativeLibrary:
    """Return the library; its compilation starts at the first call."""
    return host_jit().compile(WORDS + _IR, (_FUNCTION,), passes=Passes.CALL)


@cache
def placement() -> Any:
    """Return f(placed, count, items, number, 1 for first fit, limit, offsets) -> number of items that were placed.

    The remaining items found no room below ``limit`` (or NO_LIMIT). Arrays of words are passed by address; ``offsets``
    is written.
    """
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    arguments = (pointer, word, pointer, word, word, word, pointer)
    return placement_library().function(_FUNCTION, word, *arguments)
