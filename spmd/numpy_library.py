"""The BLAS and LAPACK library behind NumPy, where NumPy's wheel brought it."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np


@cache
def numpy_library() -> ctypes.CDLL | None:
    """Return the OpenBLAS that NumPy's wheel brought; None if NumPy is built on another library."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    found = sorted(folder.glob("*openblas*"))
    return ctypes.CDLL(str(found[0])) if found else None
