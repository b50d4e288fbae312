"""Operations without operands: parameter, constant, iota, partition-id, replica-id; and infeed, outfeed."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConstantAttrs, FeedAttrs, IotaAttrs, ParameterAttrs
from spmd.ops.checks import SCALAR_U32, TOKEN, check_dims, check_token, same_type
from spmd.ops.opdef import always, define, no_bytes
from spmd.shape import Shape, TokenShape, as_array, as_tuple


def infer_free(_: HloInstruction) -> None:
    """Return None: nothing implies the shape, the written one counts."""
    return


def infer_id(_: HloInstruction) -> Shape:
    return SCALAR_U32


def infer_token(_: HloInstruction) -> Shape:
    return TOKEN


def verify_parameter(instruction: HloInstruction) -> None:
    number = instruction.attrs_as(ParameterAttrs).number
    if number < 0:
        raise ShapeError(f"parameter number {number} is negative")


def verify_constant(instruction: HloInstruction) -> None:
    literal = instruction.attrs_as(ConstantAttrs).literal
    if literal is not None and not same_type(literal.shape, instruction.shape):
        raise ShapeError(f"the literal has shape {literal.shape}")


def verify_iota(instruction: HloInstruction) -> None:
    shape = as_array(instruction.shape)
    check_dims((instruction.attrs_as(IotaAttrs).dimension,), shape.rank, "iota_dimension")
    if not (
        shape.element_type.is_integer
        or shape.element_type.is_floating
        or shape.element_type.is_complex
    ):
        raise ShapeError(f"iota counts in a number type, found {shape.element_type}")


def verify_infeed(instruction: HloInstruction) -> None:
    check_token(instruction, 0)
    parts = as_tuple(instruction.shape).elements
    if len(parts) != 2 or not isinstance(parts[1], TokenShape):
        raise ShapeError("infeed gives (data, token)")


def verify_outfeed(instruction: HloInstruction) -> None:
    check_token(instruction, 1)
    stated = instruction.attrs_as(FeedAttrs).outfeed_shape
    if stated is not None and not same_type(stated, instruction.operand(0).shape):
        raise ShapeError(f"outfeed_shape {stated} is not the operand's")


define(Opcode.PARAMETER, infer_free, 0, verify_parameter, bytes_accessed=no_bytes)
define(Opcode.CONSTANT, infer_free, 0, verify_constant, bytes_accessed=no_bytes)
define(Opcode.IOTA, infer_free, 0, verify_iota)
define(Opcode.PARTITION_ID, infer_id, 0)
define(Opcode.REPLICA_ID, infer_id, 0)
define(Opcode.INFEED, infer_free, 1, verify_infeed, side_effect=always)
define(Opcode.OUTFEED, infer_token, 2, verify_outfeed, side_effect=always)
