"""Actions that are one call of native code on a record of words."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from runtime.codegen.llvm_jit import NativeLibrary
from spmd.literal import NDArray


def native_call(
    code: NativeLibrary, name: str, record: NDArray, arrays: tuple[NDArray, ...]
) -> Callable[[], None]:
    """Call function ``name`` of ``code`` with the address of ``record``.

    Code, record and the arrays whose addresses stand in it live as long as the action.
    """
    function = code.function(name, None, ctypes.c_void_p)
    address = record.ctypes.data

    def call(_alive: object = (code, record, arrays)) -> None:
        function(address)

    return call
