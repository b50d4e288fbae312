"""cuSOLVER functions with typed signatures, called in the library that CuPy has loaded.

CuPy's own functions set the stream before every call and cannot be captured. CuPy lacks cusolverDnXsyevBatched.
"""

from __future__ import annotations

import ctypes
from typing import Any

from spmd.errors import RunError

_NAMES = ("libcusolver.so.12", "libcusolver.so.11")
_INT, _LONG, _SIZE, _CHAR = ctypes.c_int, ctypes.c_int64, ctypes.c_size_t, ctypes.c_byte
_POINTER, _INTS, _SIZES = ctypes.c_void_p, ctypes.POINTER(_INT), ctypes.POINTER(_SIZE)
#: A matrix is passed as address and leading dimension; a workspace as address and number of elements.
_MATRIX = _ROOM = (_POINTER, _INT)

#: Function name without prefix and type letter -> types of the arguments after the handle.
_OF_TYPES: dict[str, tuple[Any, ...]] = {
    "potrf_bufferSize": (_INT, _INT, *_MATRIX, _INTS),
    "potrf": (_INT, _INT, *_MATRIX, *_ROOM, _POINTER),
    "potrfBatched": (_INT, _INT, *_MATRIX, _POINTER, _INT),
    "getrf_bufferSize": (_INT, _INT, *_MATRIX, _INTS),
    "getrf": (_INT, _INT, *_MATRIX, _POINTER, _POINTER, _POINTER),
    "geqrf_bufferSize": (_INT, _INT, *_MATRIX, _INTS),
    "geqrf": (_INT, _INT, *_MATRIX, _POINTER, *_ROOM, _POINTER),
    "orgqr_bufferSize": (_INT, _INT, _INT, *_MATRIX, _POINTER, _INTS),
    "orgqr": (_INT, _INT, _INT, *_MATRIX, _POINTER, *_ROOM, _POINTER),
    "syevd_bufferSize": (_INT, _INT, _INT, *_MATRIX, _POINTER, _INTS),
    "syevd": (_INT, _INT, _INT, *_MATRIX, _POINTER, *_ROOM, _POINTER),
    "gesvd_bufferSize": (_INT, _INT, _INTS),
    "gesvd": (
        *(_CHAR, _CHAR, _INT, _INT, *_MATRIX, _POINTER),
        *(*_MATRIX, *_MATRIX, *_ROOM, _POINTER, _POINTER),
    ),
    "gesvdjBatched_bufferSize": (
        *(_INT, _INT, _INT, *_MATRIX, _POINTER),
        *(*_MATRIX, *_MATRIX, _INTS, _POINTER, _INT),
    ),
    "gesvdjBatched": (
        *(_INT, _INT, _INT, *_MATRIX, _POINTER),
        *(*_MATRIX, *_MATRIX, *_ROOM, _POINTER, _POINTER, _INT),
    ),
}
#: Function names for real numbers -> names for complex numbers, if they differ.
_COMPLEX_NAMES = {"orgqr": "ungqr", "syevd": "heevd"}


def function_for(letter: str, name: str) -> str:
    """Return cuSOLVER's C name of LAPACK's function ``name`` or of a companion such as potrf_bufferSize.

    letter: S, D, C or Z, for the element type.
    """
    stem, *rest = name.split("_")
    if letter in "CZ":
        stem = _COMPLEX_NAMES.get(stem, stem)
    return f"cusolverDn{letter}{'_'.join([stem, *rest])}"


#: Argument types by C name.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cusolverDnCreate": (ctypes.POINTER(_POINTER),),
    "cusolverDnDestroy": (_POINTER,),
    "cusolverDnSetStream": (_POINTER, _POINTER),
    "cusolverDnCreateParams": (ctypes.POINTER(_POINTER),),
    "cusolverDnCreateGesvdjInfo": (ctypes.POINTER(_POINTER),),
    **{
        function_for(letter, name): (_POINTER, *types)
        for letter in "SDCZ"
        for name, types in _OF_TYPES.items()
    },
}
_EIGENVALUES = (_POINTER, _POINTER, _INT, _INT, _LONG, _INT, _POINTER, _LONG, _INT, _POINTER, _INT)
#: Functions that are used only from version 12 on. In earlier versions they give wrong results unless the workspace is
#: initialized with zeros.
OPTIONAL: dict[str, tuple[Any, ...]] = {
    "cusolverDnXsyevBatched_bufferSize": (*_EIGENVALUES, _SIZES, _SIZES, _LONG),
    "cusolverDnXsyevBatched": (*_EIGENVALUES, *2 * (_POINTER, _SIZE), _POINTER, _LONG),
}


class CusolverError(RunError):
    """A call of a cuSOLVER function failed, or the library was not found."""


def load_cusolver() -> ctypes.CDLL:
    """Return the loaded cuSOLVER library, with the types of its functions. Raises CusolverError if it is not found."""
    from cupy_backends.cuda.libs import cusolver  # noqa: F401 - finds it, in a wheel or in the system

    for name in _NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        optional = OPTIONAL if has_batched_eigenvalues(library) else {}
        for function, types in (FUNCTIONS | optional).items():
            getattr(library, function).argtypes = types
            getattr(library, function).restype = _INT
        return library
    raise CusolverError(f"none of {', '.join(_NAMES)} is there")


def has_batched_eigenvalues(library: ctypes.CDLL) -> bool:
    """Return whether ``library`` is a version of cuSOLVER (12) whose batched eigenvalue functions are used."""
    return library._name == _NAMES[0]


def call(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    """Call ``function`` of ``library``. Raises CusolverError, with the status (cusolver_common.h), if it fails."""
    status = getattr(library, function)(*arguments)
    if status:
        raise CusolverError(f"{function}: cuSOLVER's status {status}")
