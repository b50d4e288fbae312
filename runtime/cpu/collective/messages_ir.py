"""LLVM IR of the steps that start messages and await them, by functions of the library that carries them.

Their addresses are in the records: the code knows no library, and is the same for each. Requests are an array of that
library's handles, of whatever size.

A library gets on with messages only while it is called, so a wait calls it again; a call takes as long as many looks at
a counter. What it has once reported as an error stays one: a look at what is in flight drops the outcome, and the
library says no more of requests that it has given up.
"""

from __future__ import annotations

from runtime.codegen.ir.record_words import WORDS
from runtime.cpu.collective.shared_memory_ir import AWAIT_MESSAGES, MET, START_MESSAGES
from runtime.cpu.step.clock_ir import CLOCK
from runtime.cpu.step.spin_wait_ir import WAITS

_LOOKS_OF_A_TEST = 16
"""In the time of which a library is called once."""

# spmd_start_messages: function, the library's, number of requests, requests, word for an error, words that count what
# is sent to other nodes (bytes, messages), what is to be added to the one and to the other.
# spmd_await_messages: function, the library's, number of requests, requests, word for an error, room for statuses.
#: What both begin with; after an error, they end there.
_BEGIN = """
  %has_failed = call i1 @has_failed(ptr %record)
  br i1 %has_failed, label %broken, label %begin
broken:
  ret i64 4
begin:
  %function = call ptr @pointer(ptr %record, i64 1)
  %number = call i64 @word(ptr %record, i64 2)
  %count = trunc i64 %number to i32
  %requests = call ptr @pointer(ptr %record, i64 3)
"""

_MESSAGES = f"""
define i64 @{START_MESSAGES}(ptr %record, ptr %header, i64 %spins) {{
entry:{_BEGIN}
  %code = call i32 %function(i32 %count, ptr %requests)
  %is_well = icmp eq i32 %code, 0
  br i1 %is_well, label %started, label %failed
started:
  %sent = call ptr @pointer(ptr %record, i64 5)
  %sent_messages = getelementptr i64, ptr %sent, i64 1
  %bytes = call i64 @word(ptr %record, i64 6)
  %messages = call i64 @word(ptr %record, i64 7)
  call void @add_to(ptr %sent, i64 %bytes)
  call void @add_to(ptr %sent_messages, i64 %messages)
  ret i64 0
failed:
  %outcome = call i64 @fail(ptr %record, i32 %code)
  ret i64 %outcome
}}

define i64 @{AWAIT_MESSAGES}(ptr %record, ptr %header, i64 %spins) {{
entry:
  %complete = alloca i32{_BEGIN}
  %statuses = call ptr @pointer(ptr %record, i64 5)
  br label %test
test:
  %left = phi i64 [ %spins, %begin ], [ %fewer, %again ]
  %code = call i32 %function(i32 %count, ptr %requests, ptr %complete, ptr %statuses)
  %is_well = icmp eq i32 %code, 0
  br i1 %is_well, label %tested, label %failed
tested:
  %flag = load i32, ptr %complete
  %have_come = icmp ne i32 %flag, 0
  br i1 %have_come, label %there, label %absent
absent:
  %fewer = sub i64 %left, {_LOOKS_OF_A_TEST}
  %patient = icmp sge i64 %fewer, 0
  br i1 %patient, label %again, label %blocked
again:
  call void @pause()
  br label %test
there:
  call void @note_time(ptr %header, i64 {MET})
  ret i64 0
blocked:
  ret i64 1
failed:
  %outcome = call i64 @fail(ptr %record, i32 %code)
  ret i64 %outcome
}}

define internal void @add_to(ptr %slot, i64 %more) alwaysinline {{
  %before = load i64, ptr %slot
  %after = add i64 %before, %more
  store i64 %after, ptr %slot
  ret void
}}

define internal i1 @has_failed(ptr %record) alwaysinline {{
  %error = call ptr @pointer(ptr %record, i64 4)
  %code = load i64, ptr %error
  %result = icmp ne i64 %code, 0
  ret i1 %result
}}

define internal i64 @fail(ptr %record, i32 %code) alwaysinline {{
  %error = call ptr @pointer(ptr %record, i64 4)
  %wide = sext i32 %code to i64
  store i64 %wide, ptr %error
  ret i64 4
}}
"""


def messages_ir() -> str:
    """A module with START_MESSAGES and AWAIT_MESSAGES."""
    return "\n".join([WORDS, WAITS, CLOCK, _MESSAGES])
