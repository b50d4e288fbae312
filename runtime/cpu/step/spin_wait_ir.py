"""LLVM IR of the pauses in spin waits."""

from __future__ import annotations

import platform

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.function_writer import FunctionWriter

#: Instruction by machine that tells the core that it executes a spin loop.
_SPIN_HINTS = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
}


def pause(f: FunctionWriter) -> None:
    """Pause the core between two polls, if the machine has an instruction for this."""
    hint = _SPIN_HINTS.get(platform.machine())
    if hint is not None:
        f.add(hint)


def give_way(f: FunctionWriter, spins: Int, spin_limit: IntLike) -> None:
    """Pause between two polls, or yield the core if ``spins``, the number of past polls, has reached ``spin_limit``."""
    f.declare("declare i32 @sched_yield()")
    with f.when(spins.ult(spin_limit)) as soon:
        pause(f)
        soon.otherwise()
        f.call("i32", "sched_yield")
