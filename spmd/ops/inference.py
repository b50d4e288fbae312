"""Inference and check of one instruction's shape through its op definition."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.errors import ShapeError, VerificationError
from spmd.hlo.instruction import HloInstruction
from spmd.limits import MAX_EXCERPT
from spmd.ops.checks import same_type
from spmd.ops.opdef import OPS
from spmd.shape import Shape, TupleShape

#: Number of operands that an error message describes.
_SHOWN = 16


def describe(instruction: HloInstruction) -> str:
    """Return the instruction as text, operands with their shapes: the beginning of error messages."""
    operands = ", ".join(f"{_short(x.shape)} {x.name}" for x in instruction.operands[:_SHOWN])
    more = ", ..." if instruction.num_operands > _SHOWN else ""
    name = instruction.name or "<unnamed>"
    # While the reader infers a shape, the instruction has none.
    has_shape = instruction.shape is not None
    shape = f"{_short(instruction.shape)} " if has_shape else ""
    return f"{name} = {shape}{instruction.opcode}({operands}{more})"


def _short(shape: Shape) -> str:
    """Return the beginning of the shape's text; no more of a large tuple is written than is shown."""
    text = ""
    for part in _parts(shape):
        text += part
        if len(text) > MAX_EXCERPT:
            return f"{text[:MAX_EXCERPT]}..."
    return text


def _parts(shape: Shape) -> Iterator[str]:
    """Yield the text of ``str(shape)``, leaf by leaf."""
    if not isinstance(shape, TupleShape):
        yield str(shape)
        return
    yield "("
    for i, element in enumerate(shape.elements):
        yield ", " if i else ""
        yield f"/*index={i}*/" if i and i % 5 == 0 else ""
        yield from _parts(element)
    yield ")"


def infer_shape(instruction: HloInstruction) -> Shape | None:
    """Return the shape implied by operands, attributes and callees, layouts unset; None if the written shape is free.

    Raises ShapeError with the name of the instruction.
    """
    try:
        check_arity(instruction)
        return OPS[instruction.opcode].infer(instruction)
    except (ShapeError, VerificationError) as error:
        raise ShapeError(f"{error} in: {describe(instruction)}") from error


def check_arity(instruction: HloInstruction) -> None:
    arity = OPS[instruction.opcode].arity
    if arity is not None and instruction.num_operands != arity:
        raise ShapeError(
            f"{instruction.opcode} takes {arity} operands, found {instruction.num_operands}"
        )


def check_instruction(instruction: HloInstruction) -> None:
    """Check the arity, shape == inferred shape (I4) and the op's own rules. Raises ShapeError with the name of the
    instruction.
    """
    definition = OPS[instruction.opcode]
    try:
        check_arity(instruction)
        inferred = definition.infer(instruction)
        if inferred is not None and not same_type(instruction.shape, inferred):
            raise ShapeError(f"expected shape {inferred}, found {instruction.shape}")
        definition.verify(instruction)
    except (ShapeError, VerificationError) as error:
        raise type(error)(f"{error} in: {describe(instruction)}") from error
