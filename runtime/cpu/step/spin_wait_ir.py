"""LLVM IR of spin waits."""

from __future__ import annotations

import platform

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.function_writer import FunctionWriter

#: The instruction that tells a core that it is in a spin loop.
_SPIN_HINTS = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
}


def pause(f: FunctionWriter) -> None:
    """Pause between two polls."""
    hint = _SPIN_HINTS.get(platform.machine())
    if hint is not None:
        f.add(hint)


def give_way(f: FunctionWriter, spins: Int, spin_limit: IntLike) -> None:
    """Pause between two polls; from ``spin_limit`` polls on, yield the core."""
    f.declare("declare i32 @sched_yield()")
    with f.when(spins.ult(spin_limit)) as soon:
        pause(f)
        soon.otherwise()
        f.call("i32", "sched_yield")
