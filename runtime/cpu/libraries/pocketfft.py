"""NumPy's Fourier transforms as native code calls them: the loops behind its ufuncs, which need no interpreter.

``numpy.fft`` is pocketfft (M. Reinecke) as generalized ufuncs. A ufunc's loops stand in a struct that NumPy's C
interface documents, ``void loop(char **args, intptr *sizes, intptr *steps, void *data)``: so many times a line of
strided elements.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class LineLoop:
    """args: (lines, a real factor, results); sizes: (lines, elements of one, of a result's); steps in bytes: of line,
    factor and result from line to line, then within a line and a result. A result may be its line's memory.

    Threads may call it at the same time. ``alive``: what the code lives as long as.
    """

    function: int
    data: int
    alive: object = field(compare=False)


class _Ufunc(ctypes.Structure):
    """The beginning of NumPy's PyUFuncObject (numpy/ufuncobject.h)."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
    )


_PARTS = {
    PrimitiveType.F32: "f",
    PrimitiveType.C64: "f",
    PrimitiveType.F64: "d",
    PrimitiveType.C128: "d",
}


def line_loop(transform: str, length: int, kind: PrimitiveType) -> LineLoop | None:
    """Return the loop of FFT, IFFT, RFFT or IRFFT over ``length`` points; None if this NumPy has it elsewhere.

    ``kind``: of operand or result, either says how many bits the parts have.
    """
    name = {"FFT": "fft", "IFFT": "ifft", "IRFFT": "irfft"}.get(transform)
    if name is None:
        name = "rfft_n_odd" if length % 2 else "rfft_n_even"
    real = _PARTS[kind]
    operand = real if transform == "RFFT" else real.upper()
    result = real if transform == "IRFFT" else real.upper()
    return _loop(name, operand + real + result)


@cache
def _loop(name: str, types: str) -> LineLoop | None:
    """The loop of a ufunc for operands and result of NumPy's type characters."""
    ufunc = getattr(getattr(np.fft, "_pocketfft_umath", None), name, None)
    if not isinstance(ufunc, np.ufunc) or f"{types[:-1]}->{types[-1]}" not in ufunc.types:
        return None
    seen = _Ufunc.from_address(id(ufunc))
    counts = (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes)
    found = (seen.nin, seen.nout, seen.nargs, seen.ntypes)
    if counts != found or seen.name != name.encode():
        return None
    numbers = bytes(np.dtype(character).num for character in types)
    for k in range(ufunc.ntypes):
        if seen.types[k * 3 : k * 3 + 3] == numbers:
            function, data = seen.functions[k], seen.data[k] if seen.data else None
            return None if function is None else LineLoop(function, data or 0, ufunc)
    return None
