"""Native calls that are repeated while words of their records move on: batches of anything, with one record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from runtime.codegen.ir.record_words import WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.native_call import NativeCall

FUNCTION = "spmd_repeat"


def repeated(
    count: int, calls: Sequence[NativeCall], moves: Sequence[tuple[int, int]]
) -> tuple[NativeCall, ...]:
    """``calls`` in order, ``count`` times. moves: (address of a word, what is added to it after each time).

    Words are as they were at the end.
    """
    moves = [(word, step) for word, step in moves if step]
    if count == 1:
        return tuple(calls)
    words = [count, len(calls), len(moves)]
    words += [word for call in calls for word in (call.function, call.record)]
    words += [word for move in moves for word in move]
    record = np.array(words, np.int64)
    code = repeat_code()
    return (NativeCall(code, FUNCTION, record.ctypes.data, (record, tuple(calls))),)


@cache
def repeat_code() -> NativeLibrary:
    """``FUNCTION``, which takes the record's address."""
    return host_jit().compile(WORDS + _IR, (FUNCTION,), passes=Passes.TIDY)


# Record: times, calls, moves; a function and a record for each call; address and step of each move.
_IR = f"""
define internal void @move_words(ptr %moves, i64 %count, i64 %times) alwaysinline {{
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %move ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %move, label %end
move:
  %pair = getelementptr [2 x i64], ptr %moves, i64 %i
  %place = call ptr @pointer(ptr %pair, i64 0)
  %step = call i64 @word(ptr %pair, i64 1)
  %way = mul i64 %step, %times
  %before = load i64, ptr %place
  %after = add i64 %before, %way
  store i64 %after, ptr %place
  %next = add i64 %i, 1
  br label %look
end:
  ret void
}}

define void @{FUNCTION}(ptr %record) {{
entry:
  %times = call i64 @word(ptr %record, i64 0)
  %call_count = call i64 @word(ptr %record, i64 1)
  %move_count = call i64 @word(ptr %record, i64 2)
  %calls = getelementptr i64, ptr %record, i64 3
  %moves = getelementptr [2 x i64], ptr %calls, i64 %call_count
  br label %time
time:
  %t = phi i64 [ 0, %entry ], [ %next_t, %called ]
  br label %call
call:
  %c = phi i64 [ 0, %time ], [ %next_c, %call ]
  %pair = getelementptr [2 x i64], ptr %calls, i64 %c
  %function = call ptr @pointer(ptr %pair, i64 0)
  %inner = call ptr @pointer(ptr %pair, i64 1)
  call void %function(ptr %inner)
  %next_c = add i64 %c, 1
  %more_c = icmp ult i64 %next_c, %call_count
  br i1 %more_c, label %call, label %called
called:
  call void @move_words(ptr %moves, i64 %move_count, i64 1)
  %next_t = add i64 %t, 1
  %more_t = icmp ult i64 %next_t, %times
  br i1 %more_t, label %time, label %end
end:
  %back = sub i64 0, %times
  call void @move_words(ptr %moves, i64 %move_count, i64 %back)
  ret void
}}
"""
