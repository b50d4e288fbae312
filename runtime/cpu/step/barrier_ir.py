"""LLVM IR of barriers (collectives/communicator/node/barrier.py): arrive, sleep until a word has grown, wake sleepers.

A waiting member increments the number of sleepers, which follows the word that it waits for, checks the word once more,
and sleeps on a futex. A member that changes the word reads the number of sleepers afterwards and makes no system call
if it is 0. Both use sequentially consistent order, so that no sleeper is missed. The number of sleepers is a counter
and not a flag to clear, because a member that was woken may wait for the next passage before the member that woke it
continues.

The futex compares the low 32 bits of a word.
"""

from __future__ import annotations

import platform
import sys

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.step.barrier_engine import ENTER, WAIT, BarrierWord
from runtime.cpu.step.spin_wait_ir import pause

#: Numbers of the futex system call on Linux. On other machines a member yields its core instead of sleeping.
_SYSTEM_CALLS = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_ALL_SLEEPERS = 2**31 - 1


def barrier_ir() -> str:
    """Return a module with the functions of ``barrier_library``."""
    module = Module()
    _add_enter(module)
    _add_wait(module)
    return module.text()


def _system_call(
    f: FunctionWriter, word: Pointer, operation: int, number: Int, timeout: Pointer
) -> bool:
    """Write a call of futex on ``word``. Returns False, and writes nothing, if the machine has no such call."""
    call = _SYSTEM_CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if call is None:
        return False
    f.declare("declare i64 @syscall(i64, ...)")
    f.append(
        f"call i64 (i64, ...) @syscall(i64 {call}, ptr {word}, i64 {operation}, i64 {number}, "
        f"ptr {timeout}, ptr null, i64 0)"
    )
    return True


def _sleep(f: FunctionWriter, word: Pointer, seen: Int, timeout: Pointer) -> None:
    """Sleep while ``word`` equals ``seen``, at most for ``timeout``."""
    if not _system_call(f, word, _FUTEX_WAIT, seen & 0xFFFFFFFF, timeout):
        f.declare("declare i32 @sched_yield()")
        f.call("i32", "sched_yield")


def _let_go(f: FunctionWriter, word: Pointer, number: Int) -> None:
    """Set ``word`` to ``number`` and wake all members that sleep on it."""
    word.store(number, order="seq_cst")
    sleepers = word.element("i64", 1).load(order="seq_cst")
    with f.when(sleepers.differs(0)):
        _system_call(f, word, _FUTEX_WAKE, f.constant(_ALL_SLEEPERS), f.null())


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
    with f.repeat(barrier.word(BarrierWord.SPIN_LIMIT)) as look:
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
        _sleep(f, word, seen, barrier.element("i64", BarrierWord.SLEEP_TIMEOUT))
    sleepers.update("sub", 1, "seq_cst")
    is_closed = word.load(order="acquire") < number
    f.ret(is_closed.resized("i64"))
    f.finish()
