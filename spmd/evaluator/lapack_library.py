"""LAPACK targets that NumPy has no function for, by the LAPACK library that NumPy's wheel brings.

geev (eigenvalues and vectors of any square matrix), gees (Schur form), gehrd (Hessenberg form), sytrd (tridiagonal
form), gtsv (tridiagonal systems), geqp3 (QR with pivots) and gesvd. Raises UnsupportedError, with the routine's name,
if NumPy is built on another library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from spmd.custom_call import register_custom_call
from spmd.errors import RunError, UnsupportedError
from spmd.evaluator.lapack import flags_of
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.numpy_library import numpy_library

#: A character, a size, an array, or no function.
Argument: TypeAlias = str | int | NDArray | None
#: Results for one matrix, of the call's flags and operands.
Routine: TypeAlias = Callable[["_Lapack", dict[str, str], list[NDArray]], tuple[NDArray, ...]]

_REAL = {"f": "f", "d": "d", "F": "f", "D": "d"}
_COMPLEX = {"f": "F", "d": "D", "F": "F", "D": "D"}


@dataclass(frozen=True)
class _Lapack:
    """The routines for matrices of one element type. ``letter``: NumPy's character of the type."""

    letter: str

    @property
    def is_complex(self) -> bool:
        return self.letter in "FD"

    @property
    def real(self) -> np.dtype[np.float64]:
        return np.dtype(_REAL[self.letter])

    def empty(self, *dims: int) -> NDArray:
        """Return an array of the element type, by columns."""
        return np.zeros(dims, self.letter, order="F")

    def run(self, name: str, *arguments: Argument) -> int:
        """Call a routine, of which the last argument is appended: the info, which is returned.

        Raises RunError for an argument that the routine refuses.
        """
        function, index = self._found(name)
        info = np.zeros((), index)
        alive = [
            np.array(each, index) if isinstance(each, int) else each for each in (*arguments, info)
        ]
        pointers = [_pointer(each) for each in alive]
        lengths = [ctypes.c_size_t(1) for each in arguments if isinstance(each, str)]
        function(*pointers, *lengths)
        if info < 0:
            raise RunError(f"LAPACK's {name} refuses argument {-int(info)}")
        return int(info)

    def with_room(self, name: str, before: list[Argument], after: tuple[Argument, ...] = ()) -> int:
        """Call a routine with the workspace that it asks for between the two groups of arguments."""
        asked = self.empty(1)
        self.run(name, *before, asked, -1, *after)
        size = int(asked[0].real)
        return self.run(name, *before, self.empty(size), size, *after)

    def _found(self, name: str) -> tuple[Callable[..., None], type[np.int64 | np.int32]]:
        full = {"f": "s", "d": "d", "F": "c", "D": "z"}[self.letter] + name
        for symbol, index in ((f"scipy_{full}_64_", np.int64), (f"scipy_{full}_", np.int32)):
            found = getattr(numpy_library(), symbol, None)
            if found is not None:
                found.restype = None
                return found, index
        raise UnsupportedError(f"the library behind NumPy has no LAPACK routine {full}")


def _pointer(argument: str | NDArray | None) -> ctypes.c_void_p | ctypes.c_char_p | None:
    if isinstance(argument, str):
        return ctypes.c_char_p(argument.encode())
    return None if argument is None else ctypes.c_void_p(argument.ctypes.data)


def _geev(lapack: _Lapack, flags: dict[str, str], operands: list[NDArray]) -> tuple[NDArray, ...]:
    """Return (values, left vectors, right vectors, info); real matrices have the values' parts as two arrays."""
    a = np.array(operands[0], order="F")
    n = len(a)
    jobs = flags.get("compute_left", "N"), flags.get("compute_right", "V")
    left, right = lapack.empty(n, n), lapack.empty(n, n)
    values = [lapack.empty(n)] if lapack.is_complex else [lapack.empty(n), lapack.empty(n)]
    reals = (np.zeros(2 * n, lapack.real),) if lapack.is_complex else ()
    info = lapack.with_room("geev", [*jobs, n, a, n, *values, left, n, right, n], reals)
    vectors = [left, right]
    if not lapack.is_complex:
        vectors = [_unpacked(each, values[1]) for each in vectors]
    return (*values, *vectors, _info(info))


def _unpacked(vectors: NDArray, imaginary: NDArray) -> NDArray:
    """Return eigenvectors of a real matrix: of a conjugate pair, LAPACK keeps the parts of the first in two columns."""
    found = vectors.astype(_COMPLEX[vectors.dtype.char])
    for k in np.flatnonzero(imaginary > 0):
        found[:, k] = vectors[:, k] + 1j * vectors[:, k + 1]
        found[:, k + 1] = np.conj(found[:, k])
    return found


def _gees(lapack: _Lapack, flags: dict[str, str], operands: list[NDArray]) -> tuple[NDArray, ...]:
    """Return (Schur form, Schur vectors, values, number of selected values, info), the values as ``_geev`` does."""
    t = np.array(operands[0], order="F")
    n = len(t)
    vectors, selected = lapack.empty(n, n), np.zeros((), np.int64)
    values = [lapack.empty(n)] if lapack.is_complex else [lapack.empty(n), lapack.empty(n)]
    after = [np.zeros(n, lapack.real)] if lapack.is_complex else []
    before = [flags.get("mode", "V"), "N", None, n, t, n, selected, *values, vectors, n]
    info = lapack.with_room("gees", before, (*after, np.zeros(n, np.int64)))
    return (t, vectors, *values, _info(0), _info(info))


def _gehrd(lapack: _Lapack, _: dict[str, str], operands: list[NDArray]) -> tuple[NDArray, ...]:
    """Return (Hessenberg form and the reflectors below it, tau, info)."""
    a = np.array(operands[0], order="F")
    n, tau = len(a), lapack.empty(max(len(a) - 1, 0))
    info = lapack.with_room("gehrd", [n, 1, n, a, n, tau])
    return (a, tau, _info(info))


def _sytrd(lapack: _Lapack, flags: dict[str, str], operands: list[NDArray]) -> tuple[NDArray, ...]:
    """Return (tridiagonal form and the reflectors, diagonal, off-diagonal, tau, info)."""
    a = np.array(operands[0], order="F")
    n, tau = len(a), lapack.empty(max(len(a) - 1, 0))
    diagonal, other = np.zeros(n, lapack.real), np.zeros(max(n - 1, 0), lapack.real)
    name = "hetrd" if lapack.is_complex else "sytrd"
    info = lapack.with_room(name, [flags.get("uplo", "L"), n, a, n, diagonal, other, tau])
    return (a, diagonal, other, tau, _info(info))


def _gtsv(lapack: _Lapack, _: dict[str, str], operands: list[NDArray]) -> tuple[NDArray, ...]:
    """Return (dl, d, du, x, info) for diagonals below, on and above; the first element of dl has no meaning."""
    below, diagonal, above, x = (np.array(each, order="F") for each in operands)
    n, count = x.shape
    info = lapack.run("gtsv", n, count, below[1:], diagonal, above, x, n)
    return (below, diagonal, above, x, _info(info))


def _geqp3(lapack: _Lapack, _: dict[str, str], operands: list[NDArray]) -> tuple[NDArray, ...]:
    """Return (R and the reflectors, column order counted from 1, tau); a positive order keeps the column in front."""
    a, order = np.array(operands[0], order="F"), operands[1].astype(np.int64)
    (m, n), (_function, index) = a.shape, lapack._found("geqp3")
    order = order.astype(index)
    tau = lapack.empty(min(m, n))
    reals = (np.zeros(2 * n, lapack.real),) if lapack.is_complex else ()
    lapack.with_room("geqp3", [m, n, a, m, order, tau], reals)
    return (a, order.astype(np.int32), tau)


def _gesvd(lapack: _Lapack, flags: dict[str, str], operands: list[NDArray]) -> tuple[NDArray, ...]:
    """Return (a overwritten, singular values, U, V^H, info); mode A full, S reduced, N values alone."""
    a = np.array(operands[0], order="F")
    (m, n), mode = a.shape, flags.get("mode", "S")
    k = min(m, n)
    u, vh = lapack.empty(m, k if mode == "S" else m), lapack.empty(k if mode == "S" else n, n)
    values = np.zeros(k, lapack.real)
    reals = (np.zeros(5 * k, lapack.real),) if lapack.is_complex else ()
    before = [mode, mode, m, n, a, m, values, u, m, vh, len(vh)]
    info = lapack.with_room("gesvd", before, reals)
    return (a, values, u, vh, _info(info))


def _info(value: int) -> NDArray:
    return np.array(value, np.int32)


def _evaluated(routine: Routine, ranks: tuple[int, ...]) -> Callable[..., Value]:
    """Return the evaluation of a target. ``ranks``: the dimensions of each operand that are no batch."""

    def evaluate(instruction: HloInstruction, operands: Operands) -> Value:
        arrays, flags = arrays_of(operands), flags_of(instruction)
        batch = arrays[0].shape[: arrays[0].ndim - ranks[0]]
        lapack = _Lapack(arrays[0].dtype.char)
        if 0 in arrays[0].shape:
            raise UnsupportedError(f"{instruction!r}: LAPACK takes no empty matrices")
        found = [routine(lapack, flags, one) for one in _each(arrays, ranks)]
        return tuple(
            np.ascontiguousarray(np.stack(parts)).reshape((*batch, *parts[0].shape))
            for parts in zip(*found, strict=True)
        )

    return evaluate


def _each(arrays: list[NDArray], ranks: tuple[int, ...]) -> Iterator[list[NDArray]]:
    """Yield the operands of each matrix of a batch."""
    flat = [a.reshape((-1, *a.shape[a.ndim - r :])) for a, r in zip(arrays, ranks, strict=True)]
    for one in zip(*flat, strict=True):
        yield list(one)


for _name, _types, _routine, _ranks in (
    ("geev", "sdcz", _geev, (2,)),
    ("gees", "sdcz", _gees, (2,)),
    ("gehrd", "sdcz", _gehrd, (2,)),
    ("sytrd", "sd", _sytrd, (2,)),
    ("hetrd", "cz", _sytrd, (2,)),
    ("gtsv", "sdcz", _gtsv, (1, 1, 1, 2)),
    ("geqp3", "sdcz", _geqp3, (2, 1)),
    ("gesvd", "sdcz", _gesvd, (2,)),
):
    for _kind in _types:
        register_custom_call(f"lapack_{_kind}{_name}_ffi", evaluate=_evaluated(_routine, _ranks))
