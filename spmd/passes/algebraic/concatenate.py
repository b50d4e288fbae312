"""concatenate: single and empty parts, nesting, neighbouring slices of one value."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, SliceAttrs
from spmd.passes.algebraic.match import used_once
from spmd.passes.algebraic.rules import simplifies


def axis_of(x: HloInstruction) -> int:
    return x.attrs_as(DimensionsAttrs).dimensions[0]


@simplifies(Opcode.CONCATENATE)
def without_empty_parts(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """concatenate(a) => a; empty parts are removed"""
    axis = axis_of(x)
    parts = [part for part in x.operands if part.dims[axis]]
    if x.num_operands == 1 or len(parts) == 1:
        return (parts or list(x.operands))[0]
    return b.concatenate(parts, axis) if 0 < len(parts) < x.num_operands else None


@simplifies(Opcode.CONCATENATE)
def flattened(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """concatenate(concatenate(a, b), c) => concatenate(a, b, c)"""
    axis = axis_of(x)
    nested = [
        p.opcode is Opcode.CONCATENATE and axis_of(p) == axis and used_once(p) for p in x.operands
    ]
    if not any(nested):
        return None
    parts: list[HloInstruction] = []
    for part, inside in zip(x.operands, nested, strict=True):
        parts.extend(part.operands if inside else (part,))
    return b.concatenate(parts, axis)


@simplifies(Opcode.CONCATENATE)
def of_neighbouring_slices(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """concatenate(slice(a, 0:4), slice(a, 4:8), c) => concatenate(slice(a, 0:8), c)"""
    axis = axis_of(x)
    merged: list[HloInstruction | tuple[HloInstruction, SliceAttrs]] = []
    for part in x.operands:
        joined = _join(merged[-1] if merged else None, part, axis)
        if joined is None:
            merged.append(part)
        else:
            merged[-1] = joined
    if len(merged) == x.num_operands:
        return None
    parts = [
        p
        if isinstance(p, HloInstruction)
        else b.slice(p[0], p[1].starts, p[1].limits, p[1].strides)
        for p in merged
    ]
    return parts[0] if len(parts) == 1 else b.concatenate(parts, axis)


def _join(
    left: HloInstruction | tuple[HloInstruction, SliceAttrs] | None,
    right: HloInstruction,
    axis: int,
) -> tuple[HloInstruction, SliceAttrs] | None:
    """Return the slice that covers both slices if they are neighbours in one operand along ``axis``."""
    if left is None or right.opcode is not Opcode.SLICE:
        return None
    if isinstance(left, HloInstruction):
        if left.opcode is not Opcode.SLICE:
            return None
        left = (left.operand(0), left.attrs_as(SliceAttrs))
    source, a = left
    c = right.attrs_as(SliceAttrs)
    if right.operand(0) is not source or a.strides != c.strides or a.strides[axis] != 1:
        return None
    others = [d for d in range(len(a.starts)) if d != axis]
    same = all(a.starts[d] == c.starts[d] and a.limits[d] == c.limits[d] for d in others)
    if not same or a.limits[axis] != c.starts[axis]:
        return None
    limits = (*a.limits[:axis], c.limits[axis], *a.limits[axis + 1 :])
    return source, SliceAttrs(a.starts, limits, a.strides)
