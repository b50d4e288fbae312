"""Calls of LLVM's optimizer and code generator that several threads may run at once.

llvmlite holds one lock around every call. LLVM needs none if threads share no context and no target machine, so these
two calls, the most expensive ones, go to the library directly, with the C functions and types that llvmlite declares.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from llvmlite.binding import ffi


def run_passes(passes: Any, module: Any, builder: Any) -> None:
    """Run ``passes.run(module, builder)`` without llvmlite's lock. No other thread may use the arguments meanwhile."""
    _function("LLVMPY_RunNewModulePassManager")(passes, module, builder)


def emit_object(machine: Any, module: Any) -> bytes:
    """Return ``machine.emit_object(module)``, the bytes of an object file, without llvmlite's lock.

    No other thread may use the arguments meanwhile. Raises RuntimeError with LLVM's message if code generation fails.
    """
    with ffi.OutputString() as problem:
        buffer = _function("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, problem)
        if not buffer:
            raise RuntimeError(str(problem))
    try:
        size = ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@cache
def _function(name: str) -> Any:
    """Return the C function ``name`` of llvmlite's library, with the types that llvmlite declares for it."""
    declared = getattr(ffi.lib, name)
    function = ctypes.CDLL(ffi.lib._name)[name]  # already loaded
    function.argtypes, function.restype = declared.argtypes, declared.restype
    return function
