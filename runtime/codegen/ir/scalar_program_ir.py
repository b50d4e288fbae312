"""LLVM IR of scalar programs: functions of elements in their stored types."""

from __future__ import annotations

from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.element_operations import operation_ir
from runtime.program.scalar_program import (
    ElementSignature,
    ScalarConstant,
    ScalarProgram,
)


def struct_type(program: ScalarProgram) -> str:
    """Return the LLVM type of the structure in which the function of ``program`` returns its results."""
    return f"{{ {', '.join(stored_type(program.kind_of(r)) for r in program.results)} }}"


def program_ir(
    program: ScalarProgram, name: str, instructions: Instructions | None = None
) -> list[str]:
    """Return the function ``name`` of stored elements that runs ``program``, and the functions that it calls.

    It returns the results as a structure. ``instructions`` are the special instructions that may be used, by default
    the host's.
    """
    parameters = ", ".join(
        f"{stored_type(kind)} %v{i}" for i, kind in enumerate(program.parameters)
    )
    struct = struct_type(program)
    parts: list[str] = []
    functions: dict[ElementSignature, str] = {}
    lines = [f"define internal {struct} @{name}({parameters}) alwaysinline {{"]
    for number, step in enumerate(program.steps, len(program.parameters)):
        if isinstance(step, ScalarConstant):
            stored = stored_type(step.kind)
            bits = f"i{step.kind.byte_size * 8}"
            lines.append(f"  %v{number} = bitcast {bits} {step.bits} to {stored}")
            continue
        operation = functions.get(step.signature)
        if operation is None:
            operation = functions[step.signature] = f"{name}_{number}"
            parts += operation_ir(step.signature, operation, instructions=instructions)
        arguments = ", ".join(
            f"{stored_type(kind)} %v{r}"
            for kind, r in zip(step.signature.operands, step.operands, strict=True)
        )
        lines.append(
            f"  %v{number} = call {stored_type(step.signature.result)} @{operation}({arguments})"
        )
    value = "undef"
    for position, register in enumerate(program.results):
        stored = stored_type(program.kind_of(register))
        lines.append(
            f"  %s{position} = insertvalue {struct} {value}, {stored} %v{register}, {position}"
        )
        value = f"%s{position}"
    lines.append(f"  ret {struct} {value}\n}}\n")
    return [*parts, "\n".join(lines)]
