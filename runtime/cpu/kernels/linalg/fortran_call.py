"""Calls of a Fortran routine, matrix by matrix. Their arguments are collected one by one."""

from __future__ import annotations

import ctypes
from dataclasses import field

import numpy as np

from runtime.cpu.kernels.linalg.fortran_call_ir import FUNCTION, fortran_code
from runtime.cpu.kernels.native_call import NativeAction, NativeCall, repeated
from runtime.cpu.libraries.blas import BlasFunction
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray


@dataclass(frozen=True, slots=True)
class _Argument:
    """Argument at byte ``offset`` of ``array`` for the first matrix, and ``step`` bytes later for each further one."""

    array: NDArray
    step: int = 0
    offset: int = 0

    @property
    def address(self) -> int:
        """Return the address of the argument for the first matrix."""
        return int(self.array.ctypes.data) + self.offset


@dataclass
class FortranCall:
    """Arguments of a routine for ``count`` matrices, while they are collected.

    ``asks`` tells that the call only queries the size of the workspace. ``characters`` is the number of character
    arguments so far.
    """

    function: BlasFunction
    count: int
    asks: bool = False
    characters: int = 0
    arguments: list[_Argument] = field(default_factory=list)

    def flag(self, value: str) -> None:
        """Append a character argument."""
        self.characters += 1
        self.arguments.append(_Argument(np.array(ord(value), np.uint8)))

    def sizes(self, *values: int) -> None:
        """Append integer arguments, of the width of the library's integers."""
        dtype = np.int64 if self.function.index_bits == 64 else np.int32
        self.arguments += [_Argument(np.array(value, dtype)) for value in values]

    def each(self, array: NDArray, first: int = 0) -> None:
        """Append ``array``, which has one part for each matrix. Each argument begins at element ``first`` of a part."""
        step = array.nbytes // self.count
        self.arguments.append(_Argument(array, step, first * array.itemsize))

    def work(self, array: NDArray) -> None:
        """Append ``array``, which all calls use."""
        self.arguments.append(_Argument(array))

    def room(self, array: NDArray) -> None:
        """Append the workspace ``array`` and its size, which is -1 if the call asks for the size."""
        self.work(array)
        self.sizes(-1 if self.asks else array.size)

    def ask(self) -> None:
        """Call the routine from Python, since a single call does not justify compiling code for it."""
        addresses = [argument.address for argument in self.arguments]
        kinds = [ctypes.c_void_p] * len(addresses) + [ctypes.c_int64] * self.characters
        routine = ctypes.CFUNCTYPE(None, *kinds)(self.function.address)
        routine(*addresses, *[1] * self.characters)

    def action(self) -> NativeAction:
        """Return an action that calls the routine for each matrix."""
        addresses = [argument.address for argument in self.arguments]
        record = np.array([self.function.address, *addresses], np.int64)
        at = record.ctypes.data
        code = fortran_code(len(self.arguments), self.characters)
        alive = (record, tuple(argument.array for argument in self.arguments))
        calls = (NativeCall(code, FUNCTION, at, alive),)
        moves = [(at + 8 * (i + 1), x.step) for i, x in enumerate(self.arguments)]
        return NativeAction(repeated(self.count, calls, moves))
