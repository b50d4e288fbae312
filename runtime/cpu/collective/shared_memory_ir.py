"""LLVM IR of collectives over shared memory: an interpreter of step records, and the steps that meet and copy.

A program is a table of records of RECORD_WORDS 64-bit words, of which the first is the address of a step function:

    i64 step(ptr record, ptr header, i64 spins)      0: done, go on; otherwise an RunStatus, and the program stops here

The header says where a run stands; all of a rank's memory that its peers read or write is reached through addresses in
the records. A counter has one writer. It is released after what was written before, and acquired by who waits for it.
Native code never waits in the operating system: who has spun long enough returns, and the caller yields the core.

Two words of the header are times of the run that was started last, in nanoseconds of CLOCK_MONOTONIC (which is
time.monotonic_ns and time.perf_counter_ns), 0 before they are known:

    LANDED   its last step was found done: since then the results are complete, and nobody looks at the buffers
    MET      its first wait was found over: since then all peers have come whom it needs first. 0 in runs without waits

*Found*, since nothing is known of a collective until somebody looks at it.
"""

from __future__ import annotations

from runtime.codegen.ir.record_words import WORDS
from runtime.cpu.step.clock_ir import CLOCK
from runtime.cpu.step.spin_wait_ir import WAITS

RECORD_WORDS = 10
HEADER_WORDS = 8
LANDED, MET = 6, 7

INDEX_TYPES = {
    "int32": ("i32", "sext"),
    "uint32": ("i32", "zext"),
    "int64": ("i64", ""),
    "uint64": ("i64", ""),
}
"""Integer types of tables of offsets: LLVM's type, and how it becomes an i64."""

STEP_FUNCTIONS = (
    "spmd_signal",
    "spmd_await",
    "spmd_copy_rows",
    "spmd_fill_zero",
)
ENTRY_POINTS = ("spmd_start", "spmd_advance")

#: Functions of the steps that start messages and await them (messages_ir.py).
START_MESSAGES, AWAIT_MESSAGES = "spmd_start_messages", "spmd_await_messages"


def shared_memory_ir() -> str:
    """A module with ENTRY_POINTS and STEP_FUNCTIONS."""
    return "\n".join([WORDS, WAITS, step_interpreter_ir(), _MEET, _COPY])


def step_interpreter_ir(linkage: str = "") -> str:
    """CLOCK and ENTRY_POINTS, after WORDS: also for a module that runs collectives among other things."""
    interpreter = _INTERPRETER.format(words=RECORD_WORDS, linkage=linkage, landed=LANDED, met=MET)
    return CLOCK + interpreter


def move_rows_ir(name: str, dtype: str) -> str:
    """A module with the step function ``name``, which moves rows that tables of type ``dtype`` name."""
    index, extend = INDEX_TYPES[dtype]
    convert = f"%wide = {extend} {index} %w to i64" if extend else "%wide = add i64 %w, 0"
    return WORDS + _MOVE_ROWS.format(name=name, index=index, convert=convert)


# Header: 0 step that runs next, 1 number of steps, 2 signals given in runs before this one, 3 signals in a run,
# 4 steps of this run, 5 steps of the next run (two tables take turns where slots do), LANDED, MET.
_INTERPRETER = """
define {linkage} i64 @spmd_start(ptr %header) {{
entry:
  %pc = load i64, ptr %header
  %count = call i64 @word(ptr %header, i64 1)
  %idle = icmp eq i64 %pc, %count
  br i1 %idle, label %begin, label %misused
begin:
  %before_slot = getelementptr i64, ptr %header, i64 2
  %before = load i64, ptr %before_slot
  %signals = call i64 @word(ptr %header, i64 3)
  %now = add i64 %before, %signals
  store i64 %now, ptr %before_slot
  %this_slot = getelementptr i64, ptr %header, i64 4
  %next_slot = getelementptr i64, ptr %header, i64 5
  %this = load ptr, ptr %this_slot
  %next = load ptr, ptr %next_slot
  store ptr %next, ptr %this_slot
  store ptr %this, ptr %next_slot
  %landed_slot = getelementptr i64, ptr %header, i64 {landed}
  store i64 0, ptr %landed_slot
  %met_slot = getelementptr i64, ptr %header, i64 {met}
  store i64 0, ptr %met_slot
  store i64 0, ptr %header
  %outcome = call i64 @spmd_advance(ptr %header, i64 0)
  ret i64 %outcome
misused:
  ret i64 2
}}

define {linkage} i64 @spmd_advance(ptr %header, i64 %spins) {{
entry:
  %pc = load i64, ptr %header
  %count = call i64 @word(ptr %header, i64 1)
  %steps = call ptr @pointer(ptr %header, i64 4)
  br label %loop
loop:
  %i = phi i64 [ %pc, %entry ], [ %next, %passed ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %step, label %complete
step:
  %record = getelementptr [{words} x i64], ptr %steps, i64 %i
  %function = load ptr, ptr %record
  %outcome = call i64 %function(ptr %record, ptr %header, i64 %spins)
  %done = icmp eq i64 %outcome, 0
  br i1 %done, label %passed, label %stopped
passed:
  %next = add i64 %i, 1
  br label %loop
stopped:
  store i64 %i, ptr %header
  ret i64 %outcome
complete:
  store i64 %count, ptr %header
  call void @note_time(ptr %header, i64 {landed})
  ret i64 0
}}
"""

# spmd_signal: function, own counter, number of the signal within the run.
# spmd_await: function, addresses of counters, how many, number that each must have reached.
_MEET = f"""
define i64 @spmd_signal(ptr %record, ptr %header, i64 %spins) {{
  %counter = call ptr @pointer(ptr %record, i64 1)
  %number = call i64 @word(ptr %record, i64 2)
  %before = call i64 @word(ptr %header, i64 2)
  %value = add i64 %before, %number
  store atomic i64 %value, ptr %counter release, align 8
  ret i64 0
}}

define i64 @spmd_await(ptr %record, ptr %header, i64 %spins) {{
entry:
  %counters = call ptr @pointer(ptr %record, i64 1)
  %members = call i64 @word(ptr %record, i64 2)
  %number = call i64 @word(ptr %record, i64 3)
  %before = call i64 @word(ptr %header, i64 2)
  %wanted = add i64 %before, %number
  br label %member
member:
  %i = phi i64 [ 0, %entry ], [ %next, %there ]
  %left = phi i64 [ %spins, %entry ], [ %left_now, %there ]
  %more = icmp ult i64 %i, %members
  br i1 %more, label %look_at, label %all
look_at:
  %counter = call ptr @pointer(ptr %counters, i64 %i)
  br label %look
look:
  %left_now = phi i64 [ %left, %look_at ], [ %fewer, %spin ]
  %value = load atomic i64, ptr %counter acquire, align 8
  %has_come = icmp sge i64 %value, %wanted
  br i1 %has_come, label %there, label %absent
absent:
  %patient = icmp sgt i64 %left_now, 0
  br i1 %patient, label %spin, label %blocked
spin:
  call void @pause()
  %fewer = sub i64 %left_now, 1
  br label %look
there:
  %next = add i64 %i, 1
  br label %member
blocked:
  ret i64 1
all:
  call void @note_time(ptr %header, i64 {MET})
  ret i64 0
}}
"""

# spmd_copy_rows: function, source, target, rows, bytes of a row, bytes from row to row in the source, in the target.
# spmd_fill_zero: function, target, bytes.
_COPY = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i64 @spmd_copy_rows(ptr %record, ptr %header, i64 %spins) {
entry:
  %source = call ptr @pointer(ptr %record, i64 1)
  %target = call ptr @pointer(ptr %record, i64 2)
  %rows = call i64 @word(ptr %record, i64 3)
  %bytes = call i64 @word(ptr %record, i64 4)
  %source_stride = call i64 @word(ptr %record, i64 5)
  %target_stride = call i64 @word(ptr %record, i64 6)
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %next, %row ]
  %source_offset = mul i64 %r, %source_stride
  %target_offset = mul i64 %r, %target_stride
  %from = getelementptr i8, ptr %source, i64 %source_offset
  %to = getelementptr i8, ptr %target, i64 %target_offset
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  %next = add i64 %r, 1
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %row, label %end
end:
  ret i64 0
}

define i64 @spmd_fill_zero(ptr %record, ptr %header, i64 %spins) {
  %target = call ptr @pointer(ptr %record, i64 1)
  %bytes = call i64 @word(ptr %record, i64 2)
  call void @llvm.memset.p0.i64(ptr %target, i8 0, i64 %bytes, i1 false)
  ret i64 0
}
"""

# One sender's rows to places that the data says. Record: function, source, target, the sender's tables of (offsets in
# the source, amounts, offsets in the target), entries in each, bytes of a row, rows of the source, rows of the target.
_MOVE_ROWS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @entry(ptr %table, i64 %number) alwaysinline {{
  %p = getelementptr {index}, ptr %table, i64 %number
  %w = load {index}, ptr %p
  {convert}
  ret i64 %wide
}}

define internal i1 @outside(i64 %start, i64 %rows, i64 %size) alwaysinline {{
  ; unsigned: negative numbers are large ones; no sum, which could wrap
  %too_many = icmp ugt i64 %rows, %size
  %room = sub i64 %size, %rows
  %too_far = icmp ugt i64 %start, %room
  %outside = or i1 %too_many, %too_far
  ret i1 %outside
}}

define i64 @{name}(ptr %record, ptr %header, i64 %spins) {{
entry:
  %source = call ptr @pointer(ptr %record, i64 1)
  %target = call ptr @pointer(ptr %record, i64 2)
  %starts = call ptr @pointer(ptr %record, i64 3)
  %amounts = call ptr @pointer(ptr %record, i64 4)
  %places = call ptr @pointer(ptr %record, i64 5)
  %entries = call i64 @word(ptr %record, i64 6)
  %row_bytes = call i64 @word(ptr %record, i64 7)
  %source_rows = call i64 @word(ptr %record, i64 8)
  %target_rows = call i64 @word(ptr %record, i64 9)
  br label %update
update:
  %u = phi i64 [ 0, %entry ], [ %next, %move ]
  %more = icmp ult i64 %u, %entries
  br i1 %more, label %read, label %end
read:
  %start = call i64 @entry(ptr %starts, i64 %u)
  %rows = call i64 @entry(ptr %amounts, i64 %u)
  %place = call i64 @entry(ptr %places, i64 %u)
  %bad_source = call i1 @outside(i64 %start, i64 %rows, i64 %source_rows)
  %bad_target = call i1 @outside(i64 %place, i64 %rows, i64 %target_rows)
  %bad = or i1 %bad_source, %bad_target
  br i1 %bad, label %outside, label %move
move:
  %from_bytes = mul i64 %start, %row_bytes
  %to_bytes = mul i64 %place, %row_bytes
  %bytes = mul i64 %rows, %row_bytes
  %from = getelementptr i8, ptr %source, i64 %from_bytes
  %to = getelementptr i8, ptr %target, i64 %to_bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  %next = add i64 %u, 1
  br label %update
outside:
  ret i64 3
end:
  ret i64 0
}}
"""
