"""Native code by which a worker's thread moves to another core than the workers before it are on."""

from __future__ import annotations

from runtime.cpu.step.worker_ir import WorkerWord, worker_word

KEEP_OFF = "keep_off"
#: Of the system's set of cores: room for 8192.
_SET_WORDS = 128

CORES_IR = f"""
declare i32 @getpid()
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal i64 @note_core(ptr %worker) {{
  %slot = {worker_word(WorkerWord.CORE)}
  %core32 = call i32 @sched_getcpu()
  %core = sext i32 %core32 to i64
  store atomic i64 %core, ptr %slot monotonic, align 8
  ret i64 %core
}}

define internal i64 @core_of(ptr %worker) {{
  %slot = {worker_word(WorkerWord.CORE)}
  %core = load atomic i64, ptr %slot monotonic, align 8
  ret i64 %core
}}

define internal void @{KEEP_OFF}(ptr %worker, ptr %workers, i64 %earlier) {{
entry: ; for good, until they meet again; may be any core that the process has, less those of the earlier workers
  %set = alloca [{_SET_WORDS} x i64], align 64
  %process = call i32 @getpid()
  %unknown = call i32 @sched_getaffinity(i32 %process, i64 {8 * _SET_WORDS}, ptr %set)
  %is_known = icmp eq i32 %unknown, 0
  br i1 %is_known, label %each, label %none
each:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp ult i64 %i, %earlier
  br i1 %more, label %one, label %move
one:
  %other = call ptr @pointer(ptr %workers, i64 %i)
  %core = call i64 @core_of(ptr %other)
  %number = lshr i64 %core, 6
  %place = getelementptr i64, ptr %set, i64 %number
  %cores = load i64, ptr %place
  %digit = and i64 %core, 63
  %bit = shl i64 1, %digit
  %others = xor i64 %bit, -1
  %left = and i64 %cores, %others
  store i64 %left, ptr %place
  %next = add i64 %i, 1
  br label %each
move:
  %refused = call i32 @sched_setaffinity(i32 0, i64 {8 * _SET_WORDS}, ptr %set)
  %is_moved = icmp eq i32 %refused, 0
  br i1 %is_moved, label %moved, label %none
moved:
  %new = call i64 @note_core(ptr %worker)
  ret void
none: ; there is none left, or a sandbox forbids it: workers take turns
  %earlier_slot = {worker_word(WorkerWord.EARLIER)}
  store i64 0, ptr %earlier_slot
  ret void
}}
"""
"""``KEEP_OFF`` of a worker, its team's list and how many are before it; and the core on which a worker was seen
last."""
