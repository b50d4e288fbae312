"""cuBLASLt functions with typed signatures, called in the library that cuBLAS has loaded.

CuPy has no bindings of cuBLASLt. nvmath-python has bindings, but depends on a second set of CUDA libraries, while only
fourteen functions are needed.
"""

from __future__ import annotations

import ctypes
from typing import Any

from runtime.gpu.cuda.blas_api import CublasError, load_cublas

_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
_INT, _POINTER, _SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
_SET = (_POINTER, _INT, _POINTER, _SIZE)
_LAYOUTS = (_POINTER,) * 4

#: Size of cublasLtMatmulAlgo_t in bytes. An algorithm may be stored and reused with the same version of the library.
ALGORITHM_BYTES = 64


class Heuristic(ctypes.Structure):
    """The C structure cublasLtMatmulHeuristicResult_t: an algorithm, and its requirements."""

    _fields_ = (
        ("algorithm", ctypes.c_ubyte * ALGORITHM_BYTES),
        ("workspace", _SIZE),
        ("state", _INT),
        ("waves", ctypes.c_float),
        ("reserved", _INT * 4),
    )


#: Argument types by C name.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (ctypes.POINTER(_POINTER),),
    "cublasLtDestroy": (_POINTER,),
    "cublasLtMatmulDescCreate": (ctypes.POINTER(_POINTER), _INT, _INT),
    "cublasLtMatmulDescDestroy": (_POINTER,),
    "cublasLtMatmulDescSetAttribute": _SET,
    "cublasLtMatrixLayoutCreate": (
        ctypes.POINTER(_POINTER),
        _INT,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_int64,
    ),
    "cublasLtMatrixLayoutDestroy": (_POINTER,),
    "cublasLtMatrixLayoutSetAttribute": _SET,
    "cublasLtMatmulPreferenceCreate": (ctypes.POINTER(_POINTER),),
    "cublasLtMatmulPreferenceDestroy": (_POINTER,),
    "cublasLtMatmulPreferenceSetAttribute": _SET,
    "cublasLtMatmulAlgoGetHeuristic": (
        _POINTER,
        _POINTER,
        *_LAYOUTS,
        _POINTER,
        _INT,
        ctypes.POINTER(Heuristic),
        ctypes.POINTER(_INT),
    ),
    "cublasLtMatmulAlgoCheck": (_POINTER, _POINTER, *_LAYOUTS, _POINTER, ctypes.POINTER(Heuristic)),
    "cublasLtMatmul": (
        *(_POINTER,) * 2,
        *(_POINTER,) * 5,  # alpha, a and its layout, b and its layout
        *(_POINTER,) * 5,  # beta, c and its layout, d and its layout
        *(_POINTER,) * 2,  # algorithm, workspace
        _SIZE,
        _POINTER,
    ),
}


def load_cublas_lt() -> ctypes.CDLL:
    """Return the loaded cuBLASLt library, with the argument types of FUNCTIONS. Raises CublasError if not found."""
    load_cublas()
    for name in _NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        for function, types in FUNCTIONS.items():
            getattr(library, function).argtypes = types
            getattr(library, function).restype = _INT
        library.cublasLtGetVersion.restype = _SIZE
        return library
    raise CublasError(f"none of {', '.join(_NAMES)} is there")


def call(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    """Call ``function`` of ``library``. Raises CublasError, with the number of the status, if the call fails."""
    if status := getattr(library, function)(*arguments):
        raise CublasError(f"{function}: cuBLASLt's status {status}")
