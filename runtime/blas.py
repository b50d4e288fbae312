"""The BLAS library behind NumPy's matrix products: its threads, and its functions for native code.

Devices share a machine's cores: a BLAS that starts a thread per core on every device spends its time waiting (a GPT
training step of 0.45 s on 2 cores and 2 devices takes 6 s). So each device multiplies with one thread unless asked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from spmd.shape import PrimitiveType

_SET = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads")
_GET = ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads")


@cache
def _library() -> ctypes.CDLL | None:
    """The OpenBLAS that NumPy's wheel brought; None where NumPy is built on another BLAS."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    found = sorted(folder.glob("*openblas*"))
    return ctypes.CDLL(str(found[0])) if found else None


def _function(names: tuple[str, ...]) -> ctypes._CFuncPtr | None:  # type: ignore[name-defined]
    library = _library()
    for name in names:
        if library is not None and hasattr(library, name):
            return getattr(library, name)
    return None


@dataclass(frozen=True, slots=True)
class BlasFunction:
    """A function of cblas for one element type: where its code is, and how many bits its sizes have."""

    address: int
    index_bits: int


_LETTERS = {PrimitiveType.F32: "s", PrimitiveType.F64: "d"}


def gemm_function(kind: PrimitiveType) -> BlasFunction | None:
    """The product of matrices of ``kind`` as native code calls it; None where there is none that can be found."""
    return _blas_function(kind, "gemm")


def gemv_function(kind: PrimitiveType) -> BlasFunction | None:
    """The same of a matrix and a vector."""
    return _blas_function(kind, "gemv")


@cache
def _blas_function(kind: PrimitiveType, name: str) -> BlasFunction | None:
    library = _library()
    letter = _LETTERS.get(kind)
    if library is None or letter is None:
        return None
    for symbol, bits in (
        (f"scipy_cblas_{letter}{name}64_", 64),
        (f"scipy_cblas_{letter}{name}", 32),
    ):
        if hasattr(library, symbol):
            address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
            assert address is not None
            return BlasFunction(address, bits)
    return None


def blas_threads() -> int | None:
    """Threads that a matrix product may use; None where the library cannot be asked."""
    get = _function(_GET)
    return None if get is None else int(get())


def set_blas_threads(count: int) -> None:
    """For this process; without effect on a BLAS that cannot be told."""
    function = _function(_SET)
    if function is not None:
        function(count)


@contextmanager
def limited_blas_threads(count: int) -> Iterator[None]:
    """At most ``count`` threads per matrix product within the block."""
    before = blas_threads()
    set_blas_threads(count)
    try:
        yield
    finally:
        if before is not None:
            set_blas_threads(before)
