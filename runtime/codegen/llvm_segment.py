"""Native code that runs a table of thunks: stores each one's number, calls its function, and goes on.

Loops and branches are rows that say how many rows away to go on, so nothing nests, and a table is parts put one after
the other. The code returns after a number of jumps, since signals reach Python code alone, and is told where to go on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_words import WORDS

FUNCTION = "spmd_segment"
#: Jumps after which the code returns to Python; a trip of a loop is one.
JUMPS = 128

#: In place of a function's address.
_JUMP, _UNLESS, _UNLESS_EQUAL = range(3)
_ROW_WORDS = 5


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """Words of a row: ``number`` is the thunk's, ``function`` the address of a ``void f(ptr record)``.

    ``away``: rows from this one to the one that a jump goes to.
    """

    number: int
    function: int
    record: int
    away: int = 0
    value: int = 0

    @staticmethod
    def jump(number: int, away: int) -> SegmentRow:
        return SegmentRow(number, _JUMP, 0, away)

    @staticmethod
    def unless(number: int, predicate: int, away: int) -> SegmentRow:
        """Jump where the byte at address ``predicate`` is 0."""
        return SegmentRow(number, _UNLESS, predicate, away)

    @staticmethod
    def unless_equal(number: int, selector: int, value: int, away: int) -> SegmentRow:
        """Jump where the 32-bit number at address ``selector`` is not ``value``."""
        return SegmentRow(number, _UNLESS_EQUAL, selector, away, value)


def link_segment(
    rows: Sequence[SegmentRow], position: int, alive: tuple[object, ...]
) -> Callable[[], None]:
    """An action that runs ``rows``. ``position``: the address of the word that takes thunks' numbers."""
    table = np.array(
        [len(rows), position]
        + [word for r in rows for word in (r.function, r.record, r.number, r.away, r.value)],
        np.int64,
    )
    function = _function()
    address = ctypes.c_void_p(table.ctypes.data)
    begin = partial(function, address, ctypes.c_int64(0))

    def run(_alive: object = (table, alive)) -> None:
        row = begin()
        while row >= 0:
            row = function(address, row)

    return run


@cache
def _function() -> Callable[..., int]:
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    function: Callable[..., int] = segment_code().function(FUNCTION, word, pointer, word)
    return function


@cache
def segment_code() -> NativeLibrary:
    """``FUNCTION``: takes the table's address and the row to begin with, returns the row to go on with, or -1."""
    return host_jit().compile(WORDS + _IR, (FUNCTION,), level=2, unroll=False)


# Table: rows, address of the position's word, then the rows.
_IR = f"""
define i64 @{FUNCTION}(ptr %table, i64 %first) {{
entry:
  %count = call i64 @word(ptr %table, i64 0)
  %position = call ptr @pointer(ptr %table, i64 1)
  %rows = getelementptr i64, ptr %table, i64 2
  br label %look
look:
  %i = phi i64 [ %first, %entry ], [ %following, %next ], [ %there, %jumped ]
  %jumps = phi i64 [ {JUMPS}, %entry ], [ %jumps, %next ], [ %left, %jumped ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %row, label %finished
row:
  %r = getelementptr [{_ROW_WORDS} x i64], ptr %rows, i64 %i
  %function_word = call i64 @word(ptr %r, i64 0)
  %record = call ptr @pointer(ptr %r, i64 1)
  %number = call i64 @word(ptr %r, i64 2)
  store atomic i64 %number, ptr %position monotonic, align 8
  %following = add i64 %i, 1
  switch i64 %function_word, label %call [
    i64 {_JUMP}, label %jump
    i64 {_UNLESS}, label %unless
    i64 {_UNLESS_EQUAL}, label %unless_equal
  ]
call:
  %function = inttoptr i64 %function_word to ptr
  call void %function(ptr %record)
  br label %next
unless:
  %byte = load i8, ptr %record
  %is_false = icmp eq i8 %byte, 0
  br i1 %is_false, label %jump, label %next
unless_equal:
  %value = call i64 @word(ptr %r, i64 4)
  %selector = load i32, ptr %record
  %wide = sext i32 %selector to i64
  %differs = icmp ne i64 %wide, %value
  br i1 %differs, label %jump, label %next
next:
  br label %look
jump:
  %away = call i64 @word(ptr %r, i64 3)
  %there = add i64 %i, %away
  %left = sub i64 %jumps, 1
  %again = icmp ne i64 %left, 0
  br i1 %again, label %jumped, label %interrupted
jumped:
  br label %look
interrupted:
  ret i64 %there
finished:
  ret i64 -1
}}
"""
