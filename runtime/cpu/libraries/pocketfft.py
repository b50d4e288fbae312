"""NumPy's Fourier transforms for native code: the loops of its ufuncs, which need no interpreter.

``numpy.fft`` is pocketfft (M. Reinecke) as generalized ufuncs. A struct that NumPy's C interface documents holds a
ufunc's loops, ``void loop(char **args, intptr *sizes, intptr *steps, void *data)``. Each call transforms a number of
lines of strided elements.
"""

from __future__ import annotations

import ctypes
from dataclasses import field
from functools import cache

import numpy as np

from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class LineLoop:
    """Loop that transforms lines of elements; threads may call it concurrently.

    Its arguments: args (lines, a real factor, results); sizes (number of lines, elements of a line, of a result);
    strides in bytes of line, factor and result from line to line, then within a line and a result. A result may
    overwrite its line. ``alive``: object that owns the code.
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

    ``kind``: type of operand or result; both have parts of the same width.
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
    """Return the loop of ufunc ``name`` for operands and result of these NumPy type characters."""
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
