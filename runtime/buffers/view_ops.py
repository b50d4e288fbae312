"""Rules, by opcode, for instructions whose result is a view of their operand's memory.

A rule gets the instruction and its first operand's view. It returns the result's view, or None if strides cannot
express it (a reshape of a transpose): then the instruction is a step and writes an array of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, SliceAttrs
from spmd.registry import Registry
from spmd.shape import PrimitiveType

ViewRule: TypeAlias = Callable[[HloInstruction, StridedView], StridedView | None]

VIEW_RULES: Registry[Opcode, ViewRule] = Registry("view rule")


@VIEW_RULES.register(Opcode.COPY, Opcode.DOMAIN, Opcode.ADD_DEPENDENCY)
def same(_: HloInstruction, view: StridedView) -> StridedView:
    """Return the same view: values do not change once written, so a copy is not needed."""
    return view


@VIEW_RULES.register(Opcode.CONVERT)
def convert(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    return view if instruction.array_shape.element_type is view.element_type else None


@VIEW_RULES.register(Opcode.BITCAST_CONVERT)
def bitcast_convert(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """Reinterpret types: the last dimension of the narrower type iterates over the wider one's bytes.

    Returns None for sub-byte types, which hold no free bits, and for pred, which holds only 0 and 1.
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


@VIEW_RULES.register(Opcode.BROADCAST)
def broadcast(instruction: HloInstruction, view: StridedView) -> StridedView:
    return view.broadcast(instruction.dims, instruction.attrs_as(DimensionsAttrs).dimensions)


@VIEW_RULES.register(Opcode.TRANSPOSE)
def transpose(instruction: HloInstruction, view: StridedView) -> StridedView:
    return view.transpose(instruction.attrs_as(DimensionsAttrs).dimensions)


@VIEW_RULES.register(Opcode.REVERSE)
def reverse(instruction: HloInstruction, view: StridedView) -> StridedView:
    return view.reverse(instruction.attrs_as(DimensionsAttrs).dimensions)


@VIEW_RULES.register(Opcode.SLICE)
def slice_(instruction: HloInstruction, view: StridedView) -> StridedView:
    attrs = instruction.attrs_as(SliceAttrs)
    return view.slice(attrs.starts, attrs.limits, attrs.strides)


@VIEW_RULES.register(Opcode.RESHAPE)
def reshape(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    return view.reshape(instruction.dims)


@VIEW_RULES.register(Opcode.BITCAST)
def bitcast(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """Return the reshape that a bitcast of equal type is if layouts are ignored.

    A bitcast into the padding of tiles has another number of elements: there is no such padding here.
    """
    shape = instruction.array_shape
    if shape.element_type is not view.element_type or shape.num_elements != math.prod(view.dims):
        return None
    return view.reshape(instruction.dims)


@VIEW_RULES.register(Opcode.REAL)
def real(_: HloInstruction, view: StridedView) -> StridedView | None:
    return _complex_part(view, 0)


@VIEW_RULES.register(Opcode.IMAG)
def imag(_: HloInstruction, view: StridedView) -> StridedView | None:
    return _complex_part(view, 1)


def _complex_part(view: StridedView, part: int) -> StridedView | None:
    """Return the real or imaginary part, which alternate in memory; a real array has only its real part."""
    if not view.element_type.is_complex:
        return view if part == 0 else None
    kind = PrimitiveType.F32 if view.element_type is PrimitiveType.C64 else PrimitiveType.F64
    return StridedView(kind, view.dims, view.strides, view.offset + part * kind.byte_size)


def is_view(instruction: HloInstruction) -> bool:
    """Return whether the result may share its operand's memory (ignoring strides: a reshape may still need a copy)."""
    return instruction.opcode in VIEW_RULES
