"""Operations that run other computations: while, conditional, call, fusion, async-start, async-update, async-done."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import AsyncAttrs, ConditionalAttrs, FusionAttrs
from spmd.ops.checks import (
    check_aliases,
    check_callees,
    check_signature,
    operand_array,
    plain,
    same_type,
)
from spmd.ops.collective import infer_second_element
from spmd.ops.leaf import infer_free
from spmd.ops.opdef import SizeOf, define, definition, no_bytes, not_counted
from spmd.ops.reshape import infer_operand
from spmd.shape import ArrayShape, PrimitiveType, Shape, TupleShape, as_tuple

_PRED = ArrayShape(PrimitiveType.PRED, ())
_S32 = ArrayShape(PrimitiveType.S32, ())


# ---- while: called computations are condition and body
def verify_while(instruction: HloInstruction) -> None:
    check_callees(instruction, 2)
    condition, body = instruction.while_condition, instruction.while_body
    state = instruction.operand(0).shape
    check_signature(condition, (state,), "condition")
    check_signature(body, (state,), "body")
    if not same_type(condition.root.shape, _PRED):
        raise ShapeError(
            f"condition {condition.name} must return {_PRED}, returns {condition.root.shape}"
        )
    if not same_type(body.root.shape, state):
        raise ShapeError(f"body {body.name} must return {state}, returns {body.root.shape}")


# ---- conditional: an index (or pred), then one operand per branch
def infer_conditional(instruction: HloInstruction) -> Shape:
    if not instruction.called_computations:
        raise ShapeError("conditional has no branches")
    return plain(instruction.called_computations[0].root.shape)


def verify_conditional(instruction: HloInstruction) -> None:
    branches = instruction.called_computations
    if instruction.num_operands != 1 + len(branches):
        raise ShapeError(
            f"{len(branches)} branches need {1 + len(branches)} operands, found {instruction.num_operands}"
        )
    predicated = instruction.attrs_as(ConditionalAttrs).predicated
    wanted = _PRED if predicated else _S32
    if not same_type(operand_array(instruction, 0), wanted):
        raise ShapeError(
            f"the branch selector must be {wanted}, found {instruction.operand(0).shape}"
        )
    if predicated:
        check_callees(instruction, 2)
    for i, branch in enumerate(branches):
        check_signature(branch, (instruction.operand(1 + i).shape,), "branch")
        if not same_type(branch.root.shape, instruction.shape):
            raise ShapeError(f"branch {branch.name} returns {branch.root.shape}")


# ---- call, fusion
def infer_called_root(instruction: HloInstruction) -> Shape:
    check_callees(instruction, 1)
    return plain(instruction.to_apply.root.shape)


def verify_called(instruction: HloInstruction) -> None:
    check_signature(
        instruction.to_apply, tuple(x.shape for x in instruction.operands), "computation"
    )


def verify_fusion(instruction: HloInstruction) -> None:
    verify_called(instruction)
    check_aliases(instruction, instruction.attrs_as(FusionAttrs).output_to_operand_aliasing)


#: Opcodes whose result has the elements of the operand, in any order.
_REORDERS = (Opcode.BITCAST, Opcode.COPY, Opcode.RESHAPE, Opcode.REVERSE, Opcode.TRANSPOSE)
_SLICES = (Opcode.SLICE, Opcode.DYNAMIC_SLICE, Opcode.GATHER)


def fusion_bytes(instruction: HloInstruction, size_of: SizeOf) -> float:
    """Return the bytes that a fused kernel accesses: slices of an operand that is only sliced, none of an updated
    operand.
    """
    fused = instruction.to_apply
    read = sum(_parameter_bytes(parameter, size_of) for parameter in fused.parameters)
    return read + _written_bytes(fused.root, size_of)


def _parameter_bytes(parameter: HloInstruction, size_of: SizeOf) -> float:
    """Return the bytes of ``parameter`` that the kernel reads.

    A kernel computes the elements that its results need. If all that reads the array are slices, maybe of its
    transpose or of elementwise functions of it, the kernel reads the elements behind each slice.
    """
    total = float(size_of(parameter.shape))
    if not isinstance(parameter.shape, ArrayShape) or not total:
        return total
    read = 0
    found = {parameter: None}
    stack = [parameter]
    while stack:
        x = stack.pop()
        if x.is_root:
            return total
        for user in x.users:
            if user.opcode in _SLICES and user.operand(0) is x:
                read += user.array_shape.num_elements
            elif user.opcode is Opcode.DYNAMIC_UPDATE_SLICE and user.operand(0) is parameter:
                continue
            elif user.opcode in _REORDERS or definition(user.opcode).elementwise:
                if user not in found:
                    found[user] = None
                    stack.append(user)
            else:
                return total
    return min(read / parameter.shape.num_elements, 1.0) * total


def _written_bytes(root: HloInstruction, size_of: SizeOf) -> float:
    if root.opcode is Opcode.TUPLE:
        return sum(_written_bytes(x, size_of) for x in root.operands)
    if root.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return float(size_of(root.operand(1).shape))
    return float(size_of(root.shape))


# ---- asynchronous wrappers: ((operands), result, contexts...)
def verify_async_start(instruction: HloInstruction) -> None:
    check_callees(instruction, 1)
    parts = as_tuple(instruction.shape).elements
    if len(parts) < 2:
        raise ShapeError("async-start gives ((operands), result, contexts...)")
    operands = TupleShape(tuple(x.shape for x in instruction.operands))
    if not same_type(parts[0], operands):
        raise ShapeError(
            f"the first part must hold the operands {plain(operands)}, found {parts[0]}"
        )
    if not same_type(parts[1], instruction.to_apply.root.shape):
        raise ShapeError(
            f"the second part must be the result {instruction.to_apply.root.shape}, found {parts[1]}"
        )
    check_signature(instruction.to_apply, operands.elements, "computation")
    aliasing = instruction.attrs_as(AsyncAttrs).output_to_operand_aliasing
    if any(not index for index, _, _ in aliasing):
        raise ShapeError("a part of the start's result aliases an operand, not all of it")
    check_aliases(instruction, aliasing)


# spmd.analysis.cost counts the runs of a while's callees and chooses a conditional's branch.
define(Opcode.WHILE, infer_operand, 1, verify_while, bytes_accessed=no_bytes)
define(Opcode.CONDITIONAL, infer_conditional, None, verify_conditional, bytes_accessed=no_bytes)
define(Opcode.CALL, infer_called_root, None, verify_called, bytes_accessed=no_bytes)
define(Opcode.FUSION, infer_called_root, None, verify_fusion, bytes_accessed=fusion_bytes)
define(Opcode.ASYNC_START, infer_free, None, verify_async_start, bytes_accessed=no_bytes)
define(Opcode.ASYNC_UPDATE, infer_operand, 1, bytes_accessed=no_bytes, applications=not_counted)
define(
    Opcode.ASYNC_DONE, infer_second_element, 1, bytes_accessed=no_bytes, applications=not_counted
)
