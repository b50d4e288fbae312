"""Sums of arrays that are zero wherever the other is not: the gradient of a split.

    add(pad(a, 0, padding=0_2), pad(b, 0, padding=2_0))  =>  concatenate(a, b)

Only after partitioning: before it, the padded dimension may be sharded, and padding keeps tiles in place where a
concatenation does not. Exact but for the sign of zero (docs/numerics.md).
"""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs, PadAttrs
from spmd.passes.algebraic.match import is_partitioned, is_splat, used_once
from spmd.passes.algebraic.rules import simplifies


@dataclass(frozen=True)
class Segment:
    """Elements start..limit along one dimension: ``value``, or zeros where it is None."""

    start: int
    limit: int
    value: HloInstruction | None


@simplifies(Opcode.ADD)
def add_of_disjoint_parts(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """add of two pads (or concatenations with zeros) whose values do not overlap => concatenate"""
    left, right = x.operands
    if not (is_partitioned(b) and used_once(left) and used_once(right)) or left is right:
        return None
    dimension = _dimension(left)
    if dimension is None or _dimension(right) != dimension:
        return None
    merged = merge(segments(left, dimension), segments(right, dimension))
    if merged is None:
        return None
    parts = [s.value if s.value is not None else _zeros(x, dimension, s, b) for s in merged]
    return parts[0] if len(parts) == 1 else b.concatenate(parts, dimension)


def _dimension(x: HloInstruction) -> int | None:
    """Return the one dimension along which ``x`` is padded with zeros, or is a concatenation that contains zeros."""
    if x.opcode is Opcode.CONCATENATE:
        return (
            x.attrs_as(DimensionsAttrs).dimensions[0]
            if any(is_splat(p, 0) for p in x.operands)
            else None
        )
    if x.opcode is not Opcode.PAD or not is_splat(x.operand(1), 0):
        return None
    attrs = x.attrs_as(PadAttrs)
    if any(attrs.interior) or any(n < 0 for n in (*attrs.low, *attrs.high)):
        return None
    padded = [d for d in range(len(attrs.low)) if attrs.low[d] or attrs.high[d]]
    return padded[0] if len(padded) == 1 else None


def segments(x: HloInstruction, dimension: int) -> list[Segment]:
    """Return the segments of ``x`` along ``dimension``, without empty ones."""
    if x.opcode is Opcode.PAD:
        low, size = x.attrs_as(PadAttrs).low[dimension], x.operand(0).dims[dimension]
        total = x.dims[dimension]
        found = [
            Segment(0, low, None),
            Segment(low, low + size, x.operand(0)),
            Segment(low + size, total, None),
        ]
    else:
        found, start = [], 0
        for part in x.operands:
            size = part.dims[dimension]
            found.append(Segment(start, start + size, None if is_splat(part, 0) else part))
            start += size
    return [s for s in found if s.limit > s.start]


def merge(left: list[Segment], right: list[Segment]) -> list[Segment] | None:
    """Return the sum as segments, or None if two values overlap."""
    values = sorted((s for s in (*left, *right) if s.value is not None), key=lambda s: s.start)
    merged: list[Segment] = []
    position, end = 0, left[-1].limit
    for s in values:
        if s.start < position:
            return None
        if s.start > position:
            merged.append(Segment(position, s.start, None))
        merged.append(s)
        position = s.limit
    if position < end:
        merged.append(Segment(position, end, None))
    return merged


def _zeros(x: HloInstruction, dimension: int, segment: Segment, b: Builder) -> HloInstruction:
    dims = list(x.dims)
    dims[dimension] = segment.limit - segment.start
    return b.full(x.array_shape.without_layout().with_dims(tuple(dims)), 0)
