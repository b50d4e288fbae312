"""Native code that calls a Fortran routine: all of its arguments are addresses, which stand in a record."""

from __future__ import annotations

from functools import cache

from runtime.codegen.ir.record_words import WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes

FUNCTION = "spmd_fortran"


@cache
def fortran_code(arguments: int, characters: int) -> NativeLibrary:
    """``FUNCTION``, which takes a record: the routine's address, then its arguments'. characters: arguments that are.

    Compilers pass the lengths of these behind all others.
    """
    loads = "\n".join(
        f"  %a{i} = call ptr @pointer(ptr %record, i64 {i + 1})" for i in range(arguments)
    )
    passed = ", ".join([*(f"ptr %a{i}" for i in range(arguments)), *["i64 1"] * characters])
    ir = f"""
define void @{FUNCTION}(ptr %record) {{
  %routine = call ptr @pointer(ptr %record, i64 0)
{loads}
  call void %routine({passed})
  ret void
}}
"""
    return host_jit().compile(WORDS + ir, (FUNCTION,), passes=Passes.CALL)
