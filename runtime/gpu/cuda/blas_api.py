"""cuBLAS under typed names, called in the library that CuPy has loaded.

CuPy's own functions set the stream before every call, which takes away the memory that cuBLAS was given, and it then
allocates in captures; and there is none that gives it memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

from spmd.errors import RunError

_NAMES = ("libcublas.so.13", "libcublas.so.12")
_INT, _LONG, _POINTER = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = (
    _POINTER,
    _INT,
    _INT,
    _LONG,
)  # address, type, leading dimension, elements between matrices
_POINTERS = (_POINTER, _INT, _INT)  # an array of addresses, type, leading dimension
#: By C's names, with the types of arguments.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (ctypes.POINTER(_POINTER),),
    "cublasDestroy_v2": (_POINTER,),
    "cublasSetStream_v2": (_POINTER, _POINTER),
    "cublasSetWorkspace_v2": (_POINTER, _POINTER, ctypes.c_size_t),
    "cublasSetMathMode": (_POINTER, _INT),
    "cublasGemmStridedBatchedEx": (
        _POINTER,
        *(_INT,) * 5,
        _POINTER,
        *_MATRIX,
        *_MATRIX,
        _POINTER,
        *_MATRIX,
        *(_INT,) * 3,
    ),
    "cublasGemmBatchedEx": (
        _POINTER,
        *(_INT,) * 5,
        _POINTER,
        *_POINTERS,
        *_POINTERS,
        _POINTER,
        *_POINTERS,
        *(_INT,) * 3,
    ),
}


class CublasError(RunError):
    """A function of cuBLAS that failed."""


def load_cublas() -> ctypes.CDLL:
    """RunError where there is none."""
    from cupy_backends.cuda.libs import cublas  # noqa: F401 - finds it, in a wheel or in the system

    for name in _NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        for function, types in FUNCTIONS.items():
            getattr(library, function).argtypes = types
            getattr(library, function).restype = _INT
        library.cublasGetStatusString.argtypes = (_INT,)
        library.cublasGetStatusString.restype = ctypes.c_char_p
        return library
    raise CublasError(f"none of {', '.join(_NAMES)} is there")


def call(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    """CublasError where it fails."""
    status = getattr(library, function)(*arguments)
    if status:
        said = library.cublasGetStatusString(status)
        raise CublasError(f"{function}: {said.decode() if said else status}")
