"""Operations of single elements: which instructions are such, as steps of scalar programs, and constants."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from runtime.codegen.ir.element_operations import has_operation
from runtime.fusion.refusal import NoEmitterError
from runtime.program.scalar_program import ElementSignature, ScalarConstant, ScalarOp
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import ConstantAttrs
from spmd.ops.opdef import OPS
from spmd.shape import ArrayShape, PrimitiveType


def element_operation(signature: ElementSignature, operands: tuple[int, ...]) -> ScalarOp:
    """Return the step of a scalar program. Raises NoEmitterError if there is no code for it."""
    if not _has_operation(signature):
        types = ", ".join(map(str, signature.operands))
        raise NoEmitterError(
            f"no element operation {signature.opcode}({types}) -> {signature.result}"
        )
    return ScalarOp(signature, operands)


def is_element_operation(x: HloInstruction) -> bool:
    """Return whether ``x`` is computed per element from operands at its own indices, and from scalars."""
    shapes = [one.shape for one in (x, *x.operands)]
    if not is_elementwise(x.opcode) or renames(x) or not x.num_operands:
        return False
    if not all(isinstance(s, ArrayShape) and s.dims in (x.dims, ()) for s in shapes):
        return False
    result, *kinds = (s.element_type for s in shapes if isinstance(s, ArrayShape))
    return _has_operation(ElementSignature(x.opcode, tuple(kinds), result, x.attrs))


@lru_cache(maxsize=1024)
def _has_operation(signature: ElementSignature) -> bool:
    return has_operation(signature)


def is_elementwise(opcode: Opcode) -> bool:
    """Return whether results are computed per element, a bitcast-convert included."""
    return OPS[opcode].elementwise or opcode is Opcode.BITCAST_CONVERT


def renames(instruction: HloInstruction) -> bool:
    """Return whether the result is the operand itself."""
    if instruction.opcode is Opcode.CONVERT:
        return instruction.dims == instruction.operand(0).dims and (
            instruction.array_shape.element_type is instruction.operand(0).array_shape.element_type
        )
    return instruction.opcode is Opcode.COPY


def is_plain(x: HloInstruction) -> bool:
    """Return whether ``x`` is a static array in the default memory without control edges."""
    shape = x.shape
    if not isinstance(shape, ArrayShape) or any(shape.dynamic):
        return False
    if shape.layout is not None and shape.layout.memory_space:
        return False
    return not x.has_control_edges


def array_shape(instruction: HloInstruction) -> ArrayShape:
    """Return the array shape. Raises NoEmitterError if the value is not an array."""
    shape = instruction.shape
    if not isinstance(shape, ArrayShape):
        raise NoEmitterError(f"{instruction.name} is no array")
    return shape


def splat_constant(instruction: HloInstruction) -> ScalarConstant:
    """Return the one value of a constant. Raises NoEmitterError if elements differ, or have no bytes of their own."""
    literal = instruction.attrs_as(ConstantAttrs).literal
    kind = array_shape(instruction).element_type
    if literal is None or literal.array is None or literal.array.size == 0:
        raise NoEmitterError(f"{instruction.name} has no value")
    if kind.bits < 8 and kind is not PrimitiveType.PRED:
        raise NoEmitterError(f"{instruction.name} is of {kind}")
    array = np.ascontiguousarray(literal.array).reshape(-1)
    rows = array.view(np.uint8).reshape(array.size, array.itemsize)
    if not bool((rows == rows[:1]).all()):
        raise NoEmitterError(f"{instruction.name} is an array constant, which is to be an operand")
    return ScalarConstant(kind, int.from_bytes(rows[0].tobytes(), "little"))
