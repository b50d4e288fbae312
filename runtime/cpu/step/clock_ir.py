"""LLVM IR that reads the clock of time.perf_counter_ns and time.monotonic_ns, for modules that record times."""

from __future__ import annotations

import time

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer


def add_clock(module: Module) -> None:
    """Add the clock function, which ``now`` and ``note_time`` call, to ``module``."""
    module.declare("declare i32 @clock_gettime(i32, ptr)")
    f = internal_function(module, "now", result="i64")
    moment = f.variable("[2 x i64]")
    f.call("i32", "clock_gettime", f.constant(time.CLOCK_MONOTONIC, "i32"), moment)
    f.ret(moment.word(0) * 1_000_000_000 + moment.word(1))
    f.finish()


def now(f: FunctionWriter) -> Int:
    """Return the present time in nanoseconds."""
    found: Int = f.call("i64", "now")
    return found


def note_time(f: FunctionWriter, target: Pointer) -> None:
    """Store the present time in the word ``target``, unless a time has been stored there before."""
    with f.when(target.word().equals(0)):
        target.store(now(f))
