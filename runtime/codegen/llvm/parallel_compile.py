"""The two calls of LLVM in which compiling spends its time, on several threads at once.

llvmlite holds one lock around every call. LLVM needs none where threads share no context and no target machine, so
these two go to the library itself, by the C functions and types that llvmlite's own calls use.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from llvmlite.binding import ffi


def run_passes(passes: Any, module: Any, builder: Any) -> None:
    """As ``passes.run(module, builder)``. What it is given belongs to the calling thread alone."""
    _function("LLVMPY_RunNewModulePassManager")(passes, module, builder)


def emit_object(machine: Any, module: Any) -> bytes:
    """As ``machine.emit_object(module)``. What it is given belongs to the calling thread alone."""
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
    """With the types that llvmlite has declared for it."""
    declared = getattr(ffi.lib, name)
    function = ctypes.CDLL(ffi.lib._name)[name]  # which the loader has already
    function.argtypes, function.restype = declared.argtypes, declared.restype
    return function
