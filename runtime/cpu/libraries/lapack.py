"""LAPACK routines and CBLAS's triangular solver for native code, from the library behind NumPy's linear algebra."""

from __future__ import annotations

from runtime.cpu.libraries.blas import BlasFunction, typed_function
from spmd.shape import PrimitiveType


def lapack_function(name: str, kind: PrimitiveType) -> BlasFunction | None:
    """Return LAPACK's Fortran routine ``name``, without its type letter, for ``kind``; None if the library has none."""
    return typed_function(kind, f"{{}}{name}_")


def trsm_function(kind: PrimitiveType) -> BlasFunction | None:
    """Return CBLAS's solver of triangular systems (trsm) for ``kind``; None if the library has none."""
    return typed_function(kind, "cblas_{}trsm")
