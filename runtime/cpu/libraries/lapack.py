"""LAPACK routines and CBLAS's triangular solver for native code, from the library behind NumPy's linear algebra."""

from __future__ import annotations

import ctypes
from functools import cache

from runtime.cpu.libraries.blas import BlasFunction, library_function
from spmd.shape import PrimitiveType

LETTERS = {
    PrimitiveType.F32: "s",
    PrimitiveType.F64: "d",
    PrimitiveType.C64: "c",
    PrimitiveType.C128: "z",
}


def lapack_function(name: str, kind: PrimitiveType) -> BlasFunction | None:
    """Return LAPACK's Fortran routine ``name``, without its type letter, for ``kind``; None if the library has none."""
    return _found(kind, f"scipy_{{}}{name}_64_", f"scipy_{{}}{name}_")


def potrf_function(kind: PrimitiveType) -> BlasFunction | None:
    """Return LAPACK's Cholesky factorization (potrf) for ``kind``; None if the library has none."""
    return lapack_function("potrf", kind)


def trsm_function(kind: PrimitiveType) -> BlasFunction | None:
    """Return CBLAS's solver of triangular systems (trsm) for ``kind``; None if the library has none."""
    return _found(kind, "scipy_cblas_{}trsm64_", "scipy_cblas_{}trsm")


@cache
def _found(kind: PrimitiveType, wide: str, narrow: str) -> BlasFunction | None:
    """Return the function ``wide`` (64-bit integers) or else ``narrow`` (32-bit), with the type letter filled in."""
    letter = LETTERS.get(kind)
    if letter is None:
        return None
    for name, bits in ((wide, 64), (narrow, 32)):
        function = library_function((name.format(letter),))
        if function is not None:
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            return BlasFunction(address, bits)
    return None
