"""LLVM IR that reads the clock of time.perf_counter_ns and time.monotonic_ns, for the modules that take times."""

from __future__ import annotations

import time

CLOCK = f"""
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() noinline {{
  %time = alloca [2 x i64]
  %t = call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time
  %rest_slot = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_slot
  %whole = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %whole, %rest
  ret i64 %nanoseconds
}}

define internal void @note_time(ptr %record, i64 %word) alwaysinline {{
entry:
  %slot = getelementptr i64, ptr %record, i64 %word
  %known = load i64, ptr %slot
  %is_new = icmp eq i64 %known, 0
  br i1 %is_new, label %new, label %end
new:
  %now = call i64 @now()
  store i64 %now, ptr %slot
  br label %end
end:
  ret void
}}
"""
"""``@now()``: nanoseconds. ``@note_time(record, word)``: leave them in that word, where it is 0."""
