"""Operations on contiguous parts: slice, dynamic-slice, dynamic-update-slice, pad, concatenate."""

from __future__ import annotations

from spmd.errors import ShapeError, UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, DynamicSliceAttrs, PadAttrs, SliceAttrs
from spmd.ops.checks import bare, check_dims, check_length, operand_array
from spmd.ops.opdef import SizeOf, define
from spmd.shape import UNBOUNDED, Shape


# ---- slice
def infer_slice(instruction: HloInstruction) -> Shape:
    operand, attrs = operand_array(instruction, 0), instruction.attrs_as(SliceAttrs)
    if operand.is_unbounded:
        raise UnsupportedError(f"a slice of {operand}, whose size is unbounded, is not supported")
    for values in (attrs.starts, attrs.limits, attrs.strides):
        check_length(values, operand.rank, "slice")
    dims = []
    for size, start, limit, stride in zip(
        operand.dims, attrs.starts, attrs.limits, attrs.strides, strict=True
    ):
        if not 0 <= start <= limit <= size or stride < 1:
            raise ShapeError(
                f"slice [{start}:{limit}:{stride}] does not fit a dimension of size {size}"
            )
        dims.append(-(-(limit - start) // stride))
    return bare(operand.element_type, dims)


def twice_the_result(instruction: HloInstruction, size_of: SizeOf) -> float:
    """Count only the part that is taken as read."""
    return 2.0 * size_of(instruction.shape)


# ---- dynamic-slice, dynamic-update-slice: start indices as scalars, or (older form) one vector
def verify_start_indices(instruction: HloInstruction, first: int = 1) -> None:
    rank = operand_array(instruction, 0).rank
    given = instruction.num_operands - first
    if given == 1 and operand_array(instruction, first).rank == 1:
        vector = operand_array(instruction, first)
        if vector.dims != (rank,) or not vector.element_type.is_integer:
            raise ShapeError(f"start indices must be {rank} integers, found {vector}")
        return
    if given != rank:
        raise ShapeError(f"expected {rank} start indices, found {given}")
    for i in range(first, instruction.num_operands):
        index = operand_array(instruction, i)
        if index.dims or not index.element_type.is_integer:
            raise ShapeError(f"a start index must be an integer scalar, found {index}")
        if index.element_type is not operand_array(instruction, first).element_type:
            raise ShapeError(
                f"start indices must have one element type, found {index.element_type} and "
                f"{operand_array(instruction, first).element_type}"
            )


def infer_dynamic_slice(instruction: HloInstruction) -> Shape:
    operand, sizes = operand_array(instruction, 0), instruction.attrs_as(DynamicSliceAttrs).sizes
    check_length(sizes, operand.rank, "dynamic_slice_sizes")
    if any(not 0 <= wanted <= size for wanted, size in zip(sizes, operand.dims, strict=True)):
        raise ShapeError(f"dynamic_slice_sizes {list(sizes)} exceed the operand {operand}")
    return bare(operand.element_type, sizes)


def dynamic_slice_bytes(instruction: HloInstruction, size_of: SizeOf) -> float:
    return 2.0 * size_of(instruction.shape) + sum(
        size_of(x.shape) for x in instruction.operands[1:]
    )


def infer_dynamic_update_slice(instruction: HloInstruction) -> Shape:
    operand, update = operand_array(instruction, 0), operand_array(instruction, 1)
    if update.element_type is not operand.element_type or update.rank != operand.rank:
        raise ShapeError(f"update {update} does not fit the operand {operand}")
    if any(u > n for u, n in zip(update.dims, operand.dims, strict=True)):
        raise ShapeError(f"update {update} is larger than the operand {operand}")
    return bare(operand.element_type, operand.dims)


def verify_dynamic_update_slice(instruction: HloInstruction) -> None:
    verify_start_indices(instruction, 2)


def dynamic_update_slice_bytes(instruction: HloInstruction, size_of: SizeOf) -> float:
    """Count the update as read and written: the result shares the operand's buffer."""
    return 2.0 * size_of(instruction.operand(1).shape) + sum(
        size_of(x.shape) for x in instruction.operands[2:]
    )


# ---- pad
def infer_pad(instruction: HloInstruction) -> Shape:
    operand, value = operand_array(instruction, 0), operand_array(instruction, 1)
    attrs = instruction.attrs_as(PadAttrs)
    for values in (attrs.low, attrs.high, attrs.interior):
        check_length(values, operand.rank, "padding")
    if value.dims or value.element_type is not operand.element_type:
        raise ShapeError(
            f"the padding value must be a scalar {operand.element_type}, found {value}"
        )
    dims = []
    for size, low, high, interior in zip(
        operand.dims, attrs.low, attrs.high, attrs.interior, strict=True
    ):
        if size == UNBOUNDED:
            dims.append(UNBOUNDED)
            continue
        padded = low + size + max(0, size - 1) * interior + high
        if padded < 0 or interior < 0:
            raise ShapeError(
                f"padding {low}_{high}_{interior} does not fit a dimension of size {size}"
            )
        dims.append(padded)
    return bare(operand.element_type, dims)


# ---- concatenate
def infer_concatenate(instruction: HloInstruction) -> Shape:
    first = operand_array(instruction, 0)
    dims = instruction.attrs_as(DimensionsAttrs).dimensions
    check_length(dims, 1, "dimensions")
    check_dims(dims, first.rank, "dimensions")
    axis, total = dims[0], 0
    rest = first.dims[:axis] + first.dims[axis + 1 :]
    for i in range(instruction.num_operands):
        part = operand_array(instruction, i)
        if (
            part.element_type is not first.element_type
            or part.rank != first.rank
            or part.dims[:axis] + part.dims[axis + 1 :] != rest
        ):
            raise ShapeError(f"cannot concatenate {first} and {part} along dimension {axis}")
        size = part.dims[axis]
        total = UNBOUNDED if UNBOUNDED in (size, total) else total + size
    return bare(first.element_type, (*first.dims[:axis], total, *first.dims[axis + 1 :]))


define(Opcode.SLICE, infer_slice, 1, bytes_accessed=twice_the_result)
define(
    Opcode.DYNAMIC_SLICE,
    infer_dynamic_slice,
    None,
    verify_start_indices,
    bytes_accessed=dynamic_slice_bytes,
)
define(
    Opcode.DYNAMIC_UPDATE_SLICE,
    infer_dynamic_update_slice,
    None,
    verify_dynamic_update_slice,
    bytes_accessed=dynamic_update_slice_bytes,
)
define(Opcode.PAD, infer_pad, 2)
define(Opcode.CONCATENATE, infer_concatenate, None)
