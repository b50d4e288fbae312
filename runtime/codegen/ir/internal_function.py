"""Functions that only their own module can call."""

from __future__ import annotations

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.program.argument_record import Record


def internal_function(
    module: Module,
    name: str,
    *parameters: str,
    record: type[Record] | None = None,
    result: str = "void",
    attributes: str = "noinline",
    **lengths: int,
) -> FunctionWriter:
    """Return the writer of a function of ``module`` that is not exported and, by default, not inlined."""
    return FunctionWriter(
        name,
        record,
        module=module,
        parameters=parameters,
        result=result,
        linkage="internal",
        attributes=attributes,
        **lengths,
    )
