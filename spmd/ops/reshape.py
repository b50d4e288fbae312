"""Operations that move or reinterpret elements without computing: reshape, transpose, broadcast, reverse, bitcast,
copy, bitcast-convert, and the dynamic-dimension operations.
"""

from __future__ import annotations

from dataclasses import replace

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.checks import (
    SCALAR_S32,
    SCALAR_U32,
    bare,
    check_dims,
    check_length,
    operand_array,
    plain,
    same_type,
    set_text,
    stated_element_type,
)
from spmd.ops.elementwise import one_flop
from spmd.ops.leaf import infer_free
from spmd.ops.opdef import SizeOf, define, no_bytes
from spmd.shape import ArrayShape, Shape, TupleShape, as_array, as_tuple
from spmd.tiled_size import tiled_elements


# ---- reshape
def verify_reshape(instruction: HloInstruction) -> None:
    operand, result = operand_array(instruction, 0), instruction.array_shape
    if operand.element_type is not result.element_type:
        raise ShapeError("reshape keeps the element type")
    if operand.num_elements != result.num_elements:
        raise ShapeError(
            f"reshape keeps the number of elements: {operand.num_elements} became {result.num_elements}"
        )


# ---- bitcast: the same bytes seen as another shape of the same size
def verify_bitcast(instruction: HloInstruction) -> None:
    """Check that operand and result have the same number of bits, or the same with the padding of tiles."""
    operand, result = operand_array(instruction, 0), instruction.array_shape
    if _bits(operand, operand.num_elements) == _bits(result, result.num_elements):
        return
    padded = tiled_elements(operand), tiled_elements(result)
    if None in padded or _bits(operand, padded[0]) != _bits(result, padded[1]):
        raise ShapeError("bitcast keeps the number of bits")


def _bits(shape: ArrayShape, elements: int | None) -> int:
    return (elements or 0) * shape.element_type.packed_bits


# ---- transpose
def infer_transpose(instruction: HloInstruction) -> Shape:
    operand = operand_array(instruction, 0)
    order = instruction.attrs_as(DimensionsAttrs).dimensions
    check_length(order, operand.rank, "dimensions")
    check_dims(order, operand.rank, "dimensions")
    return bare(operand.element_type, (operand.dims[d] for d in order))


# ---- broadcast
def verify_broadcast(instruction: HloInstruction) -> None:
    operand, result = operand_array(instruction, 0), instruction.array_shape
    dims = instruction.attrs_as(DimensionsAttrs).dimensions
    check_length(dims, operand.rank, "dimensions")
    check_dims(dims, result.rank, "dimensions")
    if operand.element_type is not result.element_type:
        raise ShapeError("broadcast keeps the element type")
    sizes = tuple(result.dims[d] for d in dims)
    if sizes != operand.dims:
        raise ShapeError(
            f"result dimensions {set_text(dims)} have sizes {list(sizes)}, the operand {operand}"
        )


# ---- reverse
def infer_reverse(instruction: HloInstruction) -> Shape:
    operand = operand_array(instruction, 0)
    check_dims(instruction.attrs_as(DimensionsAttrs).dimensions, operand.rank, "dimensions")
    return bare(operand.element_type, operand.dims)


# ---- copy
def infer_operand(instruction: HloInstruction) -> Shape:
    if not instruction.num_operands:
        raise ShapeError(f"{instruction.opcode} needs an operand")
    return plain(instruction.operand(0).shape)


def infer_copy_start(instruction: HloInstruction) -> Shape:
    shape = infer_operand(instruction)
    return TupleShape((shape, shape, SCALAR_U32))


def infer_copy_done(instruction: HloInstruction) -> Shape:
    started = as_tuple(instruction.operand(0).shape).elements
    if len(started) != 3:
        raise ShapeError(
            f"copy-done takes a copy-start's (destination, source, context), found {TupleShape(started)}"
        )
    return plain(started[0])


# ---- bitcast-convert: to narrower elements it adds a minor dimension, to wider ones it removes one
def infer_bitcast_convert(instruction: HloInstruction) -> Shape:
    operand = operand_array(instruction, 0)
    target = stated_element_type(instruction)
    if operand.element_type.is_complex or target.is_complex:
        raise ShapeError("bitcast-convert takes no complex numbers")
    old, new = operand.element_type.bits, target.bits
    if old == new:
        return bare(target, operand.dims)
    if 6 in (old, new):
        raise ShapeError(f"{operand.element_type} and {target} do not make up one another")
    if old > new:
        return bare(target, (*operand.dims, old // new))
    if not operand.dims or operand.dims[-1] * old != new:
        raise ShapeError(f"the minor dimension of {operand} does not make up one {target}")
    return bare(target, operand.dims[:-1])


# ---- dynamic dimensions
_MAX_S32 = 2**31 - 1


def _one_dimension(instruction: HloInstruction) -> tuple[ArrayShape, int]:
    operand = operand_array(instruction, 0)
    dims = instruction.attrs_as(DimensionsAttrs).dimensions
    check_length(dims, 1, "dimensions")
    check_dims(dims, operand.rank, "dimensions")
    return operand, dims[0]


def infer_get_dimension_size(instruction: HloInstruction) -> Shape:
    operand, dimension = _one_dimension(instruction)
    if operand.dims[dimension] > _MAX_S32:
        raise ShapeError(f"the size of dimension {dimension} of {operand} is not s32")
    return SCALAR_S32


def infer_set_dimension_size(instruction: HloInstruction) -> Shape:
    """Return the operand's shape; the dimension's mark depends on the size and stays as written."""
    operand, dimension = _one_dimension(instruction)
    if not same_type(instruction.operand(1).shape, SCALAR_S32):
        raise ShapeError(
            f"the size of dimension {dimension} must be {SCALAR_S32}, found {instruction.operand(1).shape}"
        )
    return replace(operand, layout=None)


def verify_dynamic_reshape(instruction: HloInstruction) -> None:
    result = as_array(instruction.shape)
    if instruction.num_operands != 1 + result.rank:
        raise ShapeError(
            f"dynamic-reshape takes one size per dimension, found {instruction.num_operands - 1}"
        )
    if operand_array(instruction, 0).element_type is not result.element_type:
        raise ShapeError("dynamic-reshape keeps the element type")
    if operand_array(instruction, 0).num_elements != result.num_elements:
        raise ShapeError(
            f"dynamic-reshape keeps the number of elements of the bounds, found "
            f"{instruction.operand(0).shape} and {result}"
        )
    for i in range(1, instruction.num_operands):
        if not same_type(instruction.operand(i).shape, SCALAR_S32):
            raise ShapeError(f"a size must be {SCALAR_S32}, found {instruction.operand(i).shape}")


def read_and_write(instruction: HloInstruction, size_of: SizeOf) -> float:
    """Count the entire transfer at the start, and nothing at the done."""
    return 2.0 * size_of(instruction.operand(0).shape)


define(Opcode.RESHAPE, infer_free, 1, verify_reshape)
define(Opcode.BITCAST, infer_free, 1, verify_bitcast, bytes_accessed=no_bytes)
define(Opcode.TRANSPOSE, infer_transpose, 1)
define(Opcode.BROADCAST, infer_free, 1, verify_broadcast)
define(Opcode.REVERSE, infer_reverse, 1)
define(Opcode.COPY, infer_operand, 1, elementwise=True)
define(Opcode.COPY_START, infer_copy_start, 1, bytes_accessed=read_and_write)
define(Opcode.COPY_DONE, infer_copy_done, 1, bytes_accessed=no_bytes)
define(Opcode.BITCAST_CONVERT, infer_bitcast_convert, 1, cost=one_flop)
define(Opcode.GET_DIMENSION_SIZE, infer_get_dimension_size, 1)
define(Opcode.SET_DIMENSION_SIZE, infer_set_dimension_size, 2)
define(Opcode.DYNAMIC_RESHAPE, infer_free, None, verify_dynamic_reshape)
