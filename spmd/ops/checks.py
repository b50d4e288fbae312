"""Checks and shape helpers that the op families share."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from spmd.errors import ShapeError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.shape import (
    ArrayShape,
    BufferShape,
    PrimitiveType,
    Shape,
    ShapeIndex,
    TokenShape,
    TupleShape,
    as_array,
    subshape,
)

SCALAR_S32 = ArrayShape(PrimitiveType.S32, ())
SCALAR_U32 = ArrayShape(PrimitiveType.U32, ())
TOKEN = TokenShape()


def operand_array(instruction: HloInstruction, i: int) -> ArrayShape:
    """Return the shape of operand ``i``, which must exist and be an array."""
    if i >= instruction.num_operands:
        raise ShapeError(
            f"{instruction.opcode} needs an operand {i}, found {instruction.num_operands} operands"
        )
    shape = instruction.operand(i).shape
    if not isinstance(shape, ArrayShape):
        raise ShapeError(f"operand {i} must be an array, found {shape}")
    return shape


def bare(element_type: PrimitiveType, dims: Iterable[int]) -> ArrayShape:
    """Return an array shape without layout."""
    return ArrayShape(element_type, tuple(dims))


def stated_element_type(
    instruction: HloInstruction, default: PrimitiveType | None = None
) -> PrimitiveType:
    """Return the element type written on the instruction, for operations that leave it open."""
    if isinstance(instruction.shape, ArrayShape):
        return instruction.shape.element_type
    if default is None:
        raise ShapeError(
            f"{instruction.opcode} must state its result type, found {instruction.shape}"
        )
    return default


def check_dims(dims: tuple[int, ...], rank: int, what: str) -> None:
    """Check that ``dims`` are distinct dimension numbers below ``rank``."""
    if any(not 0 <= d < rank for d in dims):
        raise ShapeError(f"{what} {set_text(dims)} must lie in 0..{rank - 1}")
    if len(dict.fromkeys(dims)) != len(dims):
        raise ShapeError(f"{what} {set_text(dims)} must be distinct")


def check_sorted(dims: tuple[int, ...], what: str) -> None:
    if any(a >= b for a, b in pairwise(dims)):
        raise ShapeError(f"{what} {set_text(dims)} must be in ascending order")


def check_length(values: tuple[object, ...], length: int, what: str) -> None:
    if len(values) != length:
        raise ShapeError(f"{what} must have {length} entries, found {len(values)}")


def check_callees(instruction: HloInstruction, count: int) -> None:
    if len(instruction.called_computations) != count:
        raise ShapeError(
            f"{instruction.opcode} calls {count} computations, found {len(instruction.called_computations)}"
        )


def check_token(instruction: HloInstruction, i: int) -> None:
    """Check that operand ``i`` is a token."""
    if not isinstance(instruction.operand(i).shape, TokenShape):
        raise ShapeError(f"operand {i} must be a token, found {instruction.operand(i).shape}")


def check_aliases(
    instruction: HloInstruction, aliases: tuple[tuple[ShapeIndex, int, ShapeIndex], ...]
) -> None:
    """Check output_to_operand_aliasing: the parts of the result and of operands exist and have one shape."""
    for output_index, number, operand_index in aliases:
        if not 0 <= number < instruction.num_operands:
            raise ShapeError(f"the result cannot alias operand {number}: there is none")
        parts = (
            (instruction.shape, output_index),
            (instruction.operand(number).shape, operand_index),
        )
        try:
            result, operand = (subshape(shape, index) for shape, index in parts)
        except (IndexError, ShapeError):
            raise ShapeError(
                f"{set_text(output_index)} of the result or {set_text(operand_index)} of operand "
                f"{number}, which are said to alias, does not exist"
            ) from None
        if not same_type(_buffer_array(result), _buffer_array(operand)):
            raise ShapeError(f"the result {result} cannot alias the operand {operand}")


def _buffer_array(shape: Shape) -> Shape:
    """Return the array in a buffer: pin makes a buffer of an array, unpin an array of a buffer, in the same memory."""
    return shape.array if isinstance(shape, BufferShape) else shape


def set_text(values: Iterable[object]) -> str:
    """Return ``{1,2}``, as texts of attributes list values."""
    return f"{{{','.join(map(str, values))}}}"


def one_or_tuple(shapes: Iterable[Shape]) -> Shape:
    """Return the only shape itself, or the tuple of several (variadic operations)."""
    elements = tuple(shapes)
    return elements[0] if len(elements) == 1 else TupleShape(elements)


def result_elements(shape: Shape) -> tuple[Shape, ...]:
    """Return the parts of a variadic operation's result."""
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def scalar(shape: Shape) -> bool:
    return isinstance(shape, ArrayShape) and not shape.dims


def check_signature(computation: HloComputation, parameters: tuple[Shape, ...], what: str) -> None:
    """Check that ``computation`` takes ``parameters`` (layouts ignored)."""
    found = tuple(p.shape for p in computation.parameters)
    if len(found) != len(parameters):
        raise ShapeError(
            f"{what} {computation.name} must take {len(parameters)} parameters, takes {len(found)}"
        )
    for i, (have, want) in enumerate(zip(found, parameters, strict=True)):
        if not same_type(have, want):
            raise ShapeError(f"{what} {computation.name}: parameter {i} must be {want}, is {have}")


def scalar_of(shape: Shape) -> ArrayShape:
    return ArrayShape(as_array(shape).element_type, ())


def same_type(a: Shape, b: Shape) -> bool:
    """Return whether element types and sizes are equal; layouts and dynamic-dimension marks do not count."""
    return a == b or plain(a) == plain(b)


def plain(shape: Shape) -> Shape:
    """Return ``shape`` without layouts and dynamic marks."""
    if isinstance(shape, ArrayShape):
        if shape.layout is None and not shape.dynamic:
            return shape
        return ArrayShape(shape.element_type, shape.dims)
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(plain(element) for element in shape.elements))
    if isinstance(shape, BufferShape):
        return BufferShape(ArrayShape(shape.array.element_type, shape.array.dims))
    return shape
