"""Rules, by opcode, for instructions whose result is a view of their operand's memory.

A rule takes the instruction and the view of its first operand. It returns the view of the result, or None if strides
cannot express it, as for the reshape of a transpose. The instruction then becomes an op that writes its own array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from runtime.program.strides import StridedView
from runtime.program.view_rules import REARRANGING
from spmd.hlo import HloInstruction, Opcode
from spmd.registry import Registry
from spmd.shape import COMPLEX_PARTS, PrimitiveType

ViewRule: TypeAlias = Callable[[HloInstruction, StridedView], StridedView | None]

VIEW_RULES: Registry[Opcode, ViewRule] = Registry("view rule")


@VIEW_RULES.register(Opcode.COPY, Opcode.DOMAIN, Opcode.ADD_DEPENDENCY)
def same(_: HloInstruction, view: StridedView) -> StridedView:
    """Return ``view`` itself. Values do not change once they are written, so no copy is needed."""
    return view


@VIEW_RULES.register(Opcode.CONVERT)
def convert(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """Return ``view`` itself if the type does not change, else None."""
    return view if instruction.array_shape.element_type is view.element_type else None


@VIEW_RULES.register(Opcode.BITCAST_CONVERT)
def bitcast_convert(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """Return ``view`` with its bytes as elements of another type.

    If the types differ in width, the last dimension of the narrower type spans an element of the wider type. Returns
    None for types of less than a byte, which are stored one per byte, for pred, whose bytes are 0 or 1, and if strides
    cannot express the result.
    """
    shape = instruction.array_shape
    types = (shape.element_type, view.element_type)
    if PrimitiveType.PRED in types or any(t.bits < 8 for t in types):
        return None
    if shape.dims == view.dims:
        return view.with_type(shape.element_type) if types[0].bits == types[1].bits else None
    kind, size = shape.element_type, shape.element_type.byte_size
    if shape.rank > len(view.dims):
        return StridedView(kind, shape.dims, (*view.strides, size), view.offset)
    steps = (view.offset, *view.strides[:-1])
    if view.strides[-1] != view.element_type.byte_size or any(step % size for step in steps):
        return None
    return StridedView(kind, shape.dims, view.strides[:-1], view.offset)


@VIEW_RULES.register(*REARRANGING)
def rearranged(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """Return the view of an operation that only rearranges elements; None if strides cannot express it."""
    return REARRANGING[instruction.opcode](instruction.dims, instruction.attrs, view)


@VIEW_RULES.register(Opcode.BITCAST)
def bitcast(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """Return ``view`` with other dimensions: without layouts, a bitcast of equal type is a reshape.

    Returns None for another type, or for another number of elements, as of a bitcast to padded tiles, which the runtime
    does not have.
    """
    shape = instruction.array_shape
    if shape.element_type is not view.element_type or shape.num_elements != math.prod(view.dims):
        return None
    return view.reshape(instruction.dims)


@VIEW_RULES.register(Opcode.REAL)
def real(_: HloInstruction, view: StridedView) -> StridedView | None:
    """Return the view of the real parts."""
    return _complex_part(view, 0)


@VIEW_RULES.register(Opcode.IMAG)
def imag(_: HloInstruction, view: StridedView) -> StridedView | None:
    """Return the view of the imaginary parts; None for a real array, which stores none."""
    return _complex_part(view, 1)


def _complex_part(view: StridedView, part: int) -> StridedView | None:
    """Return the view of the real (0) or imaginary (1) parts, which alternate in memory.

    Returns None for the imaginary parts of a real array.
    """
    if not view.element_type.is_complex:
        return view if part == 0 else None
    kind = COMPLEX_PARTS[view.element_type]
    return StridedView(kind, view.dims, view.strides, view.offset + part * kind.byte_size)


def is_view(instruction: HloInstruction) -> bool:
    """Return whether ``instruction`` has a view rule. Its result is then a view unless strides cannot express it."""
    return instruction.opcode in VIEW_RULES
