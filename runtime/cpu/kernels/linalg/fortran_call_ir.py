"""Native code that calls a Fortran routine, whose arguments are all addresses, with arguments from a record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.program.argument_record import Address, Record, record

FUNCTION = "spmd_fortran"


@record
class FortranRecord(Record):
    """Addresses of the routine and of its arguments."""

    routine: Address
    arguments: Sequence[Address]


@cache
def fortran_code(arguments: int, characters: int) -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes a FortranRecord of ``arguments`` arguments.

    ``characters`` is the number of character arguments, whose lengths compilers pass after all other arguments.
    """
    f = FunctionWriter(FUNCTION, FortranRecord, arguments=arguments)
    routine = f.record.routine
    f.call("void", routine.name, *f.record.arguments, *[1] * characters)
    return host_jit().compile(f.end(), (FUNCTION,), passes=Passes.CALL)
