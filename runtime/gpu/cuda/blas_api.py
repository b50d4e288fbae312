"""cuBLAS functions with typed signatures, called in the library that CuPy has loaded.

CuPy's own functions set the stream before every call, which resets the workspace of the cuBLAS handle; cuBLAS then
allocates memory during captures. CuPy has no function to set a workspace.
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
_TRIANGULAR = (_POINTER, *(_INT,) * 6, _POINTER, _POINTER, _INT, _POINTER, _INT)
_FACTORS = (_POINTER, _INT, _POINTER, _INT, _POINTER, _POINTER, _INT)
_REFLECTORS = (_POINTER, _INT, _INT, _POINTER, _INT, _POINTER, _POINTER, _INT)
#: Argument types by C name.
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
    **{f"cublas{letter}trsm_v2": _TRIANGULAR for letter in "SDCZ"},
    **{f"cublas{letter}trsmBatched": (*_TRIANGULAR, _INT) for letter in "SDCZ"},
    **{f"cublas{letter}getrfBatched": _FACTORS for letter in "SDCZ"},
    **{f"cublas{letter}geqrfBatched": _REFLECTORS for letter in "SDCZ"},
}


class CublasError(RunError):
    """A call of a cuBLAS or cuBLASLt function failed, or the library was not found."""


def load_cublas() -> ctypes.CDLL:
    """Return the loaded cuBLAS library, with the argument types of FUNCTIONS. Raises CublasError if it is not found."""
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
    """Call ``function`` of ``library``. Raises CublasError, with the text of the status, if the call fails."""
    status = getattr(library, function)(*arguments)
    if status:
        said = library.cublasGetStatusString(status)
        raise CublasError(f"{function}: {said.decode() if said else status}")
