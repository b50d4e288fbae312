"""Fourier transforms of NumPy for native code: the inner loops of its ufuncs, which run without the interpreter.

``numpy.fft`` is pocketfft (M. Reinecke) in the form of generalized ufuncs. A struct of NumPy's documented C interface
holds a ufunc's loops, ``void loop(char **args, intptr *sizes, intptr *steps, void *data)``. Each call of a loop
transforms a number of lines of strided elements.
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
    """Loop of a ufunc that transforms lines of elements. Threads may call it concurrently.

    Its arguments are: args (lines, a real factor, results); sizes (number of lines, elements of a line, elements of a
    result); steps, strides in bytes: of line, factor and result from one line to the next, then within a line and
    within a result; and ``data``. A result may overwrite its line.
    function: address of the loop. alive: object that owns the code.
    """

    function: int
    data: int
    alive: object = field(compare=False)


class _Ufunc(ctypes.Structure):
    """First fields of NumPy's PyUFuncObject (numpy/ufuncobject.h)."""

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
    """Return the loop of FFT, IFFT, RFFT or IRFFT over ``length`` points.

    kind: type of the operand or of the result, whose parts have the same width. Returns None if this version of NumPy
    has no such ufunc, or stores its loops in another way.
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
    """Return the loop of ufunc ``name`` for operands and result of these NumPy type characters.

    Returns None if there is no such loop, or if the ufunc's struct does not have the expected fields.
    """
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
