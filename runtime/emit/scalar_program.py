"""Conversion of HLO computations on scalars, such as reducers, to scalar programs."""

from __future__ import annotations

from runtime.codegen.ir.element_operations import has_operation
from runtime.program.scalar_program import (
    ElementSignature,
    ScalarConstant,
    ScalarOp,
    ScalarProgram,
    ScalarStep,
)
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.ops.attrs import ConstantAttrs, ParameterAttrs
from spmd.ops.reduction import through_annotations
from spmd.shape import ArrayShape, PrimitiveType


def scalar_program(computation: HloComputation) -> ScalarProgram | None:
    """Return ``computation`` as a scalar program.

    Returns None if one of its values is no scalar, or if one of its operations has no native code.
    """
    parameters = tuple(_kind(parameter) for parameter in computation.parameters)
    registers: dict[HloInstruction, int] = {}
    steps: list[ScalarStep] = []
    for instruction in computation.instructions:
        if instruction.opcode is Opcode.PARAMETER:
            registers[instruction] = instruction.attrs_as(ParameterAttrs).number
            continue
        source = through_annotations(instruction)
        if source is not instruction or instruction.opcode is Opcode.TUPLE:
            continue
        step = _step(instruction, registers)
        if step is None:
            return None
        registers[instruction] = len(parameters) + len(steps)
        steps.append(step)
    kinds = [kind for kind in parameters if kind is not None]
    results = [registers.get(through_annotations(result)) for result in computation.root.elements]
    known = [register for register in results if register is not None]
    if len(kinds) < len(parameters) or len(known) < len(results):
        return None
    return ScalarProgram(tuple(kinds), tuple(steps), tuple(known))


def _kind(instruction: HloInstruction) -> PrimitiveType | None:
    """Return the element type of ``instruction`` if it is a scalar, else None."""
    shape = instruction.shape
    if not isinstance(shape, ArrayShape) or shape.dims:
        return None
    return shape.element_type


def _step(instruction: HloInstruction, registers: dict[HloInstruction, int]) -> ScalarStep | None:
    """Return the program step of ``instruction``, or None if it has no native code or is no scalar."""
    kind = _kind(instruction)
    if kind is None:
        return None
    if instruction.opcode is Opcode.CONSTANT:
        literal = instruction.attrs_as(ConstantAttrs).literal
        if literal is None or (kind.bits < 8 and kind is not PrimitiveType.PRED):
            return None
        return ScalarConstant(kind, int.from_bytes(literal.value().tobytes(), "little"))
    operands = [through_annotations(operand) for operand in instruction.operands]
    kinds = [_kind(operand) for operand in operands]
    known = [k for k in kinds if k is not None]
    operand_registers = [registers[operand] for operand in operands if operand in registers]
    if len(known) < len(operands) or len(operand_registers) < len(operands):
        return None
    signature = ElementSignature(instruction.opcode, tuple(known), kind, instruction.attrs)
    return ScalarOp(signature, tuple(operand_registers)) if has_operation(signature) else None
