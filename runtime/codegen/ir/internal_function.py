"""Functions that only their own module calls, and that stay functions."""

from __future__ import annotations

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.record import Record


def internal_function(
    module: Module, name: str, *parameters: str, record: type[Record] | None = None, **lengths: int
) -> FunctionWriter:
    """Return the writer of a function of ``module`` that is not exported and not inlined."""
    return FunctionWriter(
        name,
        record,
        module=module,
        parameters=parameters,
        result="void",
        linkage="internal",
        attributes="noinline",
        **lengths,
    )
