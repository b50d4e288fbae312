"""Index vectors of gathers and scatters: the components that a scalar program computes from elements."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.elements.builder import Int
from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.ir.dynamic_starts import widened_index
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.program.scalar_program import ScalarProgram

_FUNCTION = "indices"


def index_functions(program: ScalarProgram, instructions: Instructions | None = None) -> list[str]:
    """Return the functions that ``index_vector`` calls: none if ``program`` computes nothing.

    ``instructions`` are those that ``program_ir`` takes.
    """
    return program_ir(program, _FUNCTION, instructions) if program.steps else []


def index_vector(
    writer: FunctionWriter, program: ScalarProgram, elements: Sequence[Int]
) -> list[Int]:
    """Write the computation of an index vector and return its components as i64.

    elements: the loaded parameters of ``program``.
    """
    results = program.results
    found = [elements[register] for register in results if register < len(elements)]
    if program.steps:
        found = writer.results(struct_type(program), len(results), _FUNCTION, *elements)
    return [
        widened_index(program.kind_of(register), component)
        for register, component in zip(results, found, strict=True)
    ]
