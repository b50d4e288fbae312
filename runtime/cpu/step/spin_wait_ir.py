"""LLVM IR of spin waits."""

from __future__ import annotations

import platform

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.function_writer import FunctionWriter

#: The instruction that tells a core that it is in a spin loop: the intrinsic's declaration, and its call.
_SPIN_HINTS = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def pause(f: FunctionWriter) -> None:
    """Pause between two polls."""
    hint = _SPIN_HINTS.get(platform.machine())
    if hint is not None:
        f.declare(hint[0])
        f.add(hint[1])


def give_way(f: FunctionWriter, spins: Int, spin_limit: IntLike) -> None:
    """Pause between two polls; from ``spin_limit`` polls on, yield the core."""
    f.declare("declare i32 @sched_yield()")
    with f.when(spins.ult(spin_limit)) as soon:
        pause(f)
        soon.otherwise()
        f.call("i32", "sched_yield")
