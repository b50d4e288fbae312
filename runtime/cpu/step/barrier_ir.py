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

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.step.spin_wait_ir import pause

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
    module = Module()
    _add_enter(module)
    _add_wait(module)
    return host_jit().compile(module.text(), FUNCTIONS, passes=Passes.CALL)


def _system_call(
    f: FunctionWriter, word: Pointer, operation: int, number: Int, nap: Pointer
) -> bool:
    """Call futex of ``word``; return whether there is such a call."""
    call = _SYSTEM_CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if call is None:
        return False
    f.declare("declare i64 @syscall(i64, ...)")
    f.append(
        f"call i64 (i64, ...) @syscall(i64 {call}, ptr {word}, i64 {operation}, i64 {number}, "
        f"ptr {nap}, ptr null, i64 0)"
    )
    return True


def _sleep(f: FunctionWriter, word: Pointer, seen: Int, nap: Pointer) -> None:
    """Sleep while the word is ``seen``."""
    if not _system_call(f, word, _FUTEX_WAIT, seen & 0xFFFFFFFF, nap):
        f.declare("declare i32 @sched_yield()")
        f.call("i32", "sched_yield")


def _let_go(f: FunctionWriter, word: Pointer, number: Int) -> None:
    """Let everybody go on who waits for the word to become ``number``."""
    word.store(number, order="seq_cst")
    sleepers = word.element("i64", 1).load(order="seq_cst")
    with f.when(sleepers.differs(0)):
        _system_call(f, word, _FUTEX_WAKE, f.constant(_EVERYBODY), f.null())


def _add_enter(module: Module) -> None:
    f = FunctionWriter(ENTER, module=module, parameters=("ptr",), result="i64")
    (barrier,) = f.parameters
    number = barrier.word(BarrierWord.NUMBER) + 1
    barrier.element("i64", BarrierWord.NUMBER).store(number)
    barrier.pointer(BarrierWord.OWN).store(number, order="release")
    come = barrier.pointer(BarrierWord.COME).update("add", 1, "seq_cst") + 1
    with f.when(come.equals(barrier.word(BarrierWord.MEMBERS) * number)):
        _let_go(f, barrier.pointer(BarrierWord.OPENED), number)
    f.ret(f.call("i64", WAIT, barrier))
    f.finish()


def _add_wait(module: Module) -> None:
    f = FunctionWriter(WAIT, module=module, parameters=("ptr",), result="i64")
    (barrier,) = f.parameters
    number, word = barrier.word(BarrierWord.NUMBER), barrier.pointer(BarrierWord.OPENED)
    with f.repeat(barrier.word(BarrierWord.LOOKS)) as look:
        (left,) = look.values
        with f.when(word.load(order="acquire") >= number):
            f.ret(0)
        look.leave(left.equals(0))
        pause(f)
        look.again(left - 1)
    sleepers = word.element("i64", 1)
    sleepers.update("add", 1, "seq_cst")
    seen = word.load(order="seq_cst")
    with f.when(seen < number):
        _sleep(f, word, seen, barrier.element("i64", BarrierWord.NAP))
    sleepers.update("sub", 1, "seq_cst")
    is_closed = word.load(order="acquire") < number
    f.ret(is_closed.resized("i64"))
    f.finish()
