"""Native code that is the same for all programs: compiled on other threads, while Python compiles a program."""

from __future__ import annotations

from runtime.codegen.llvm_crew import crew_library
from runtime.codegen.llvm_gate import gate_library
from runtime.shared_memory_engine import native_step_engine


def begin_fixed_code(devices: int | None) -> None:
    """``devices``: of the program, where that is known: one has no collectives."""
    crew_library()
    if devices != 1:
        gate_library()
        native_step_engine().begin()
