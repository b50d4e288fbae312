"""The two most expensive calls of LLVM, made so that they run on several threads at once.

llvmlite holds one lock around every call. LLVM needs none if threads share no context and no target machine, so these
two call the library directly, by the C functions and types that llvmlite uses.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from llvmlite.binding import ffi


def run_passes(passes: Any, module: Any, builder: Any) -> None:
    """Run ``passes.run(module, builder)`` without the lock. The arguments must belong to the calling thread alone."""
    _function("LLVMPY_RunNewModulePassManager")(passes, module, builder)


def emit_object(machine: Any, module: Any) -> bytes:
    """Run ``machine.emit_object(module)`` without the lock. The arguments must belong to the calling thread alone.

    Raises RuntimeError with LLVM's message if it fails.
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
    """Return the C function, with the types that llvmlite declares for it."""
    declared = getattr(ffi.lib, name)
    function = ctypes.CDLL(ffi.lib._name)[name]  # already loaded
    function.argtypes, function.restype = declared.argtypes, declared.restype
    return function
