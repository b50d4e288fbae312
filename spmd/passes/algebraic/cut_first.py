"""Slices of computed values: cut the operands and compute only what is taken.

    s = f32[4] slice(f32[8] add(a, b)), slice={[0:4]}   =>   add(slice(a), slice(b))

Only for what nobody else reads, or it would be computed twice; and only after partitioning: before it, a slice of a
sharded dimension moves elements between devices, and two operands are more than one result.
"""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.ops import definition
from spmd.ops.attrs import DimensionsAttrs, SliceAttrs
from spmd.passes.algebraic.match import non_unit, used_once
from spmd.passes.algebraic.rules import simplifies
from spmd.passes.rewrite import is_pinned


def _is_partitioned(b: Builder) -> bool:
    module = b.computation.module
    return module is not None and module.stage >= Stage.PARTITIONED


def _is_free(x: HloInstruction) -> bool:
    """May be replaced together with its only user."""
    return used_once(x) and not is_pinned(x)


def _is_pointwise(x: HloInstruction) -> bool:
    """Each element comes from the operands' elements at its place, and from scalars."""
    if not definition(x.opcode).elementwise or x.opcode in (Opcode.COPY, Opcode.MAP):
        return False
    return all(not operand.dims or operand.dims == x.dims for operand in x.operands)


def _again(
    x: HloInstruction, operands: list[HloInstruction], dims: tuple[int, ...], b: Builder
) -> HloInstruction:
    """The same operation on smaller operands."""
    shape = x.array_shape.without_layout().with_dims(dims)
    return b.create(x.opcode, operands, x.attrs, shape=shape)


@simplifies(Opcode.SLICE)
def slice_of_elementwise(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(f(a, c)) => f(slice(a), slice(c))"""
    inner = x.operand(0)
    if not _is_partitioned(b) or not _is_free(inner) or not _is_pointwise(inner) or not inner.dims:
        return None
    cut = x.attrs_as(SliceAttrs)
    operands = [
        b.slice(operand, cut.starts, cut.limits, cut.strides) if operand.dims else operand
        for operand in inner.operands
    ]
    return _again(inner, operands, x.dims, b)


@simplifies(Opcode.DYNAMIC_SLICE)
def dynamic_slice_of_elementwise(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """dynamic-slice(f(a, broadcast(c))) => f(dynamic-slice(a), broadcast(c)), c a scalar: still one array is cut"""
    inner = x.operand(0)
    if not _is_partitioned(b) or not _is_free(inner) or not _is_pointwise(inner) or not inner.dims:
        return None
    cut = {o for o in inner.operands if o.dims and not _is_repeated_scalar(o)}
    if len(cut) != 1:
        return None
    (source,) = cut
    smaller = b.dynamic_slice(source, x.operands[1:], x.dims)
    operands = [smaller if o is source else _repeated(o, x.dims, b) for o in inner.operands]
    return _again(inner, operands, x.dims, b)


def _is_repeated_scalar(x: HloInstruction) -> bool:
    return x.opcode is Opcode.BROADCAST and not x.operand(0).dims


def _repeated(x: HloInstruction, dims: tuple[int, ...], b: Builder) -> HloInstruction:
    return b.broadcast_scalar(x.operand(0), dims) if x.dims else x


@simplifies(Opcode.SLICE)
def slice_across_parts(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(concatenate(a, c, d)) => concatenate(slice(a), slice(c)): of each part what is taken, none of the others"""
    inner, cut = x.operand(0), x.attrs_as(SliceAttrs)
    if not _is_partitioned(b) or inner.opcode is not Opcode.CONCATENATE or not _is_free(inner):
        return None
    if not x.array_shape.num_elements:
        return None
    axis = inner.attrs_as(DimensionsAttrs).dimensions[0]
    parts = []
    offset = 0
    for part in inner.operands:
        starts, limits = list(cut.starts), list(cut.limits)
        starts[axis], limits[axis] = _within(cut, axis, offset, part.dims[axis])
        if starts[axis] < limits[axis]:
            parts.append(b.slice(part, starts, limits, cut.strides))
        offset += part.dims[axis]
    return parts[0] if len(parts) == 1 else b.concatenate(parts, axis)


def _within(cut: SliceAttrs, axis: int, offset: int, size: int) -> tuple[int, int]:
    """Start and limit, counted from ``offset``, of what ``cut`` takes of ``size`` elements there."""
    start, stride = cut.starts[axis], cut.strides[axis]
    if start < offset:
        start += -(-(offset - start) // stride) * stride
    return start - offset, min(cut.limits[axis], offset + size) - offset


@simplifies(Opcode.SLICE)
def slice_of_unit_reshape(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(reshape(a)) => reshape(slice(a)) where the reshape only adds or drops dimensions of size 1"""
    inner, cut = x.operand(0), x.attrs_as(SliceAttrs)
    if (
        not _is_partitioned(b)
        or inner.opcode is not Opcode.RESHAPE
        or not x.array_shape.num_elements
    ):
        return None
    source = inner.operand(0)
    if not (_is_free(inner) or source.opcode is Opcode.SLICE):
        return None
    if non_unit(source.array_shape) != non_unit(inner.array_shape):
        return None
    places = iter(d for d, n in enumerate(inner.dims) if n != 1)
    starts, limits, strides = [], [], []
    for size in source.dims:
        d = next(places) if size != 1 else None
        starts.append(cut.starts[d] if d is not None else 0)
        limits.append(cut.limits[d] if d is not None else 1)
        strides.append(cut.strides[d] if d is not None else 1)
    return b.reshape(b.slice(source, starts, limits, strides), x.dims)
