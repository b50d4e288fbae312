"""LLVM IR of barriers (collectives/communicator/node/barrier.py): come, sleep until a word has grown, let sleepers go
on.

Who waits says so in the word behind the one that it waits for, looks once more, and sleeps in the kernel (a futex).
Who changes the word looks at the number of sleepers afterwards: no system call where nobody sleeps. Both in one order
for all, so that no sleeper is forgotten. It is a number, not a flag that is cleared: one that has just gone on and
waits for the next passage is counted again before the one that woke it is done.

The kernel compares a word's low 32 bits.
"""

from __future__ import annotations

import platform
import sys
from enum import IntEnum
from functools import cache

from runtime.codegen.ir.record_words import WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.step.spin_wait_ir import WAITS

ENTER, WAIT = FUNCTIONS = ("spmd_barrier_enter", "spmd_barrier_wait")


class BarrierWord(IntEnum):
    """Words of a member's record; see BarrierWords."""

    MEMBERS = 0
    OWN = 1
    COME = 2
    OPENED = 3
    LOOKS = 4
    NUMBER = 5
    NAP = 6  # seconds and nanoseconds after which a sleep ends by itself


RECORD_WORDS = 8

#: Numbers of the futex system call; elsewhere nobody sleeps, and the core is given up instead.
_SYSTEM_CALLS = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_EVERYBODY = 2**31 - 1


@cache
def barrier_library() -> NativeLibrary:
    """Return i64 enter(ptr record) and i64 wait(ptr record): 0 when the passage is over."""
    ir = "\n".join([WORDS, WAITS, _sleep_ir(), _IR])
    return host_jit().compile(ir, FUNCTIONS, passes=Passes.CALL)


def _sleep_ir() -> str:
    """``@sleep(ptr word, i64 seen, ptr nap)``: while it is that; ``@wake(ptr word)``: everybody who sleeps so."""
    number = _SYSTEM_CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if number is None:
        return _WITHOUT_FUTEX
    return _WITH_FUTEX.replace("NUMBER", str(number))


_WITHOUT_FUTEX = """
define internal void @sleep(ptr %word, i64 %seen, ptr %nap) {
  %r = call i32 @sched_yield()
  ret void
}

define internal void @wake(ptr %word) {
  ret void
}
"""

_WITH_FUTEX = f"""
declare i64 @syscall(i64, ...)

define internal void @sleep(ptr %word, i64 %seen, ptr %nap) {{
  %low = and i64 %seen, 4294967295
  %r = call i64 (i64, ...) @syscall(
    i64 NUMBER, ptr %word, i64 {_FUTEX_WAIT}, i64 %low, ptr %nap, ptr null, i64 0)
  ret void
}}

define internal void @wake(ptr %word) {{
  %r = call i64 (i64, ...) @syscall(
    i64 NUMBER, ptr %word, i64 {_FUTEX_WAKE}, i64 {_EVERYBODY}, ptr null, ptr null, i64 0)
  ret void
}}
"""

_IR = f"""
define internal void @let_go(ptr %word, i64 %number) {{
entry:
  store atomic i64 %number, ptr %word seq_cst, align 8
  %sleepers_slot = getelementptr i64, ptr %word, i64 1
  %sleepers = load atomic i64, ptr %sleepers_slot seq_cst, align 8
  %any = icmp ne i64 %sleepers, 0
  br i1 %any, label %wake, label %end
wake:
  call void @wake(ptr %word)
  br label %end
end:
  ret void
}}

define i64 @{ENTER}(ptr %node_barrier) {{
entry:
  %number_slot = getelementptr i64, ptr %node_barrier, i64 {BarrierWord.NUMBER.value}
  %passed = load i64, ptr %number_slot
  %number = add i64 %passed, 1
  store i64 %number, ptr %number_slot
  %own = call ptr @pointer(ptr %node_barrier, i64 {BarrierWord.OWN.value})
  store atomic i64 %number, ptr %own release, align 8
  %come = call ptr @pointer(ptr %node_barrier, i64 {BarrierWord.COME.value})
  %before = atomicrmw add ptr %come, i64 1 seq_cst
  %now = add i64 %before, 1
  %members = call i64 @word(ptr %node_barrier, i64 {BarrierWord.MEMBERS.value})
  %all = mul i64 %members, %number
  %is_last = icmp eq i64 %now, %all
  br i1 %is_last, label %last, label %end
last:
  %opened = call ptr @pointer(ptr %node_barrier, i64 {BarrierWord.OPENED.value})
  call void @let_go(ptr %opened, i64 %number)
  br label %end
end:
  %r = call i64 @{WAIT}(ptr %node_barrier)
  ret i64 %r
}}

define i64 @{WAIT}(ptr %node_barrier) {{
entry:
  %number = call i64 @word(ptr %node_barrier, i64 {BarrierWord.NUMBER.value})
  %word = call ptr @pointer(ptr %node_barrier, i64 {BarrierWord.OPENED.value})
  %looks = call i64 @word(ptr %node_barrier, i64 {BarrierWord.LOOKS.value})
  %nap = getelementptr i64, ptr %node_barrier, i64 {BarrierWord.NAP.value}
  br label %look
look:
  %left = phi i64 [ %looks, %entry ], [ %fewer, %again ]
  %seen = load atomic i64, ptr %word acquire, align 8
  %is_open = icmp sge i64 %seen, %number
  br i1 %is_open, label %through, label %closed
closed:
  %patient = icmp ne i64 %left, 0
  br i1 %patient, label %again, label %tired
again:
  call void @pause()
  %fewer = sub i64 %left, 1
  br label %look
tired:
  %sleepers = getelementptr i64, ptr %word, i64 1
  %others = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %last_look = load atomic i64, ptr %word seq_cst, align 8
  %opened = icmp sge i64 %last_look, %number
  br i1 %opened, label %awake, label %sleep
sleep:
  call void @sleep(ptr %word, i64 %last_look, ptr %nap)
  br label %awake
awake:
  %fewer_sleepers = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %after = load atomic i64, ptr %word acquire, align 8
  %is_over = icmp sge i64 %after, %number
  br i1 %is_over, label %through, label %not_yet
not_yet:
  ret i64 1
through:
  ret i64 0
}}
"""
