"""slice, dynamic-slice, dynamic-update-slice, reverse: full slices, constant starts, slices of repeated values."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, IotaAttrs, PadAttrs, SliceAttrs
from spmd.passes.algebraic.match import broadcast_dims, constant_starts
from spmd.passes.algebraic.rules import simplifies


@simplifies(Opcode.SLICE, Opcode.DYNAMIC_SLICE)
def slice_of_everything(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """A slice of the operand's size => the operand (dynamic starts are clamped to 0)"""
    return x.operand(0) if x.dims == x.operand(0).dims else None


@simplifies(Opcode.SLICE)
def slice_of_slice(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(slice(a)) => slice(a)"""
    inner = x.operand(0)
    if inner.opcode is not Opcode.SLICE:
        return None
    outer, first = x.attrs_as(SliceAttrs), inner.attrs_as(SliceAttrs)
    starts, limits, strides = [], [], []
    for d, size in enumerate(x.dims):
        start = first.starts[d] + outer.starts[d] * first.strides[d]
        if size == 0:
            start = 0  # an empty slice may start beyond the end
        stride = first.strides[d] * outer.strides[d]
        starts.append(start)
        strides.append(stride)
        limits.append(start + (size - 1) * stride + 1 if size else start)
    return b.slice(inner.operand(0), starts, limits, strides)


@simplifies(Opcode.SLICE, Opcode.DYNAMIC_SLICE)
def slice_of_broadcast(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(broadcast(a)) => broadcast(slice(a)), or broadcast(a) if only repeated dimensions are sliced"""
    inner = x.operand(0)
    if inner.opcode is not Opcode.BROADCAST:
        return None
    source, dims = inner.operand(0), broadcast_dims(inner)
    sizes = [x.dims[d] for d in dims]
    if all(x.dims[d] == inner.dims[d] for d in dims):
        return b.broadcast(source, dims, x.dims)
    if x.opcode is Opcode.SLICE:
        cut = x.attrs_as(SliceAttrs)
        starts, limits, strides = (
            [values[d] for d in dims] for values in (cut.starts, cut.limits, cut.strides)
        )
        return b.broadcast(b.slice(source, starts, limits, strides), dims, x.dims)
    indices = [x.operand(1 + d) for d in dims if len(x.operands) == 1 + len(x.dims)]
    if len(indices) != len(dims):
        return None
    return b.broadcast(b.dynamic_slice(source, indices, sizes), dims, x.dims)


@simplifies(Opcode.SLICE)
def slice_of_iota(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(iota) => iota if the slice of the counted dimension starts at 0"""
    inner, attrs = x.operand(0), x.attrs_as(SliceAttrs)
    if inner.opcode is not Opcode.IOTA:
        return None
    dimension = inner.attrs_as(IotaAttrs).dimension
    if attrs.starts[dimension] or attrs.strides[dimension] != 1:
        return None
    return b.iota(x.array_shape.element_type, x.dims, dimension)


@simplifies(Opcode.SLICE)
def slice_of_concatenate(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(concatenate(a, b)) => slice(b) if the slice lies in one part"""
    inner, attrs = x.operand(0), x.attrs_as(SliceAttrs)
    if inner.opcode is not Opcode.CONCATENATE or not x.array_shape.num_elements:
        return None
    axis = inner.attrs_as(DimensionsAttrs).dimensions[0]
    offset = 0
    for part in inner.operands:
        size = part.dims[axis]
        if offset <= attrs.starts[axis] and attrs.limits[axis] <= offset + size:
            starts, limits = list(attrs.starts), list(attrs.limits)
            starts[axis] -= offset
            limits[axis] -= offset
            return b.slice(part, starts, limits, attrs.strides)
        offset += size
    return None


@simplifies(Opcode.SLICE)
def slice_of_pad(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(pad(a)) => slice(a) if the slice contains no padding"""
    inner, attrs = x.operand(0), x.attrs_as(SliceAttrs)
    if inner.opcode is not Opcode.PAD or any(inner.attrs_as(PadAttrs).interior):
        return None
    low, source = inner.attrs_as(PadAttrs).low, inner.operand(0)
    starts = [s - n for s, n in zip(attrs.starts, low, strict=True)]
    limits = [s - n for s, n in zip(attrs.limits, low, strict=True)]
    if any(s < 0 or e > n or s > e for s, e, n in zip(starts, limits, source.dims, strict=True)):
        return None
    return b.slice(source, starts, limits, attrs.strides)


@simplifies(Opcode.DYNAMIC_SLICE)
def dynamic_slice_at_constant(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """dynamic-slice with constant starts => slice"""
    operand, indices = x.operand(0), x.operands[1:]
    starts = constant_starts(indices, operand.dims, x.dims)
    if starts is None:
        return None
    return b.slice(operand, starts, [s + n for s, n in zip(starts, x.dims, strict=True)])


@simplifies(Opcode.DYNAMIC_UPDATE_SLICE)
def update_of_everything(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """An update as large as the operand => the update"""
    return x.operand(1) if x.operand(1).dims == x.dims else None


@simplifies(Opcode.REVERSE)
def reverse_to_itself(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A reverse of dimensions of size 1, or of repeated ones => x; reverse(reverse(x)) => x"""
    operand, dims = x.operand(0), x.attrs_as(DimensionsAttrs).dimensions
    constant = [d for d in dims if x.dims[d] == 1]
    if operand.opcode is Opcode.BROADCAST:
        constant += [d for d in dims if d not in broadcast_dims(operand)]
    if len(set(constant)) == len(dims):
        return operand
    if operand.opcode is Opcode.REVERSE and set(
        operand.attrs_as(DimensionsAttrs).dimensions
    ) == set(dims):
        return operand.operand(0)
    return b.reverse(operand, [d for d in dims if d not in constant]) if constant else None
