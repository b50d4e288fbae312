"""Slices of computed values: cut the operands and compute only what is taken.

    s = f32[4] slice(f32[8] add(a, b)), slice={[0:4]}   =>   add(slice(a), slice(b))

Only if the value has no other user, or only a few of its elements are read at all: otherwise it would be computed
twice. And only after partitioning: before it, a slice of a sharded dimension moves elements between devices, and two
operands are more than one result.
"""

from __future__ import annotations

import numpy as np

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops import definition
from spmd.ops.attrs import DimensionsAttrs, GatherAttrs, IotaAttrs, SliceAttrs
from spmd.passes.algebraic.match import broadcast_dims, is_partitioned, non_unit, used_once
from spmd.passes.algebraic.rules import simplifies
from spmd.passes.rewrite import is_pinned
from spmd.shape import PrimitiveType

#: A slice of a value with other users is computed separately if the value has at least this many times its elements.
FEW = 4

#: Least number of elements of an iota that is not stored as a constant to read a few of its numbers.
LARGE_IOTA = 1 << 16


def _is_free(x: HloInstruction) -> bool:
    """Return whether ``x`` may be replaced along with its only user."""
    return used_once(x) and not is_pinned(x)


def _is_read_in_part(x: HloInstruction) -> bool:
    """Return whether `x` may be computed slice by slice: it has one user, or its slices are few elements together."""
    if is_pinned(x) or x.is_root:
        return False
    if x.num_users == 1:
        return True
    if any(user.opcode is not Opcode.SLICE for user in x.users):
        return False
    taken = sum(user.array_shape.num_elements for user in x.users)
    return FEW * taken <= x.array_shape.num_elements


def _is_pointwise(x: HloInstruction) -> bool:
    """Return whether each element is computed from the operands' elements at the same index, and from scalars."""
    if not definition(x.opcode).elementwise or x.opcode in (Opcode.COPY, Opcode.MAP):
        return False
    return all(not operand.dims or operand.dims == x.dims for operand in x.operands)


def _again(
    x: HloInstruction, operands: list[HloInstruction], dims: tuple[int, ...], b: Builder
) -> HloInstruction:
    """Repeat the operation on smaller operands."""
    shape = x.array_shape.without_layout().with_dims(dims)
    return b.create(x.opcode, operands, x.attrs, shape=shape)


@simplifies(Opcode.SLICE)
def slice_of_elementwise(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(f(a, c)) => f(slice(a), slice(c))"""
    inner = x.operand(0)
    if not is_partitioned(b) or not _is_pointwise(inner) or not inner.dims:
        return None
    if not _is_read_in_part(inner):
        return None
    cut = x.attrs_as(SliceAttrs)
    operands = [_cut(operand, cut, b) if operand.dims else operand for operand in inner.operands]
    return _again(inner, operands, x.dims, b)


def _cut(x: HloInstruction, cut: SliceAttrs, b: Builder) -> HloInstruction:
    """Return the slice of `x`, one that is there already if possible, so that `x` has few users."""
    for user in x.users:
        if user.opcode is Opcode.SLICE and user.attrs == cut and not is_pinned(user):
            return user
    return b.slice(x, cut.starts, cut.limits, cut.strides)


@simplifies(Opcode.SLICE)
def slice_of_large_iota(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """slice(iota) => iota * stride + start, if the entire iota is large and the numbers are exact"""
    inner = x.operand(0)
    if not is_partitioned(b) or inner.opcode is not Opcode.IOTA:
        return None
    cut, dimension = x.attrs_as(SliceAttrs), inner.attrs_as(IotaAttrs).dimension
    size, element_type = inner.dims[dimension], x.array_shape.element_type
    if size < LARGE_IOTA or FEW * x.dims[dimension] > size:
        return None
    start, stride = cut.starts[dimension], cut.strides[dimension]
    if not _counts_exactly(element_type, size):
        return None
    counted = b.iota(element_type, x.dims, dimension)
    if stride > 1 and x.dims[dimension] > 1:
        counted = b.multiply(counted, b.full(x.array_shape, _wrapped(stride, element_type)))
    return (
        b.add(counted, b.full(x.array_shape, _wrapped(start, element_type))) if start else counted
    )


def _counts_exactly(element_type: PrimitiveType, size: int) -> bool:
    """Return whether sums and products of numbers below `size` have no rounding in `element_type`.

    Integers wrap around as the conversion of a larger number does.
    """
    if element_type.is_integer:
        return element_type.bits >= 8
    if element_type in (PrimitiveType.F32, PrimitiveType.F64):
        return size <= 1 << (24 if element_type is PrimitiveType.F32 else 53)
    return False


def _wrapped(number: int, element_type: PrimitiveType) -> object:
    """Return `number` modulo the range of an integer type, and as it is in a float type."""
    return np.asarray(number).astype(element_type.numpy)


@simplifies(Opcode.DYNAMIC_SLICE)
def dynamic_slice_of_elementwise(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """dynamic-slice(f(a, broadcast(c))) => f(dynamic-slice(a), broadcast(c)) if c is a scalar: still one slice"""
    inner = x.operand(0)
    if not is_partitioned(b) or not _is_free(inner) or not _is_pointwise(inner) or not inner.dims:
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
    """slice(concatenate(a, c, d)) => concatenate(slice(a), slice(c)): only parts that the slice overlaps are read"""
    inner, cut = x.operand(0), x.attrs_as(SliceAttrs)
    if not is_partitioned(b) or inner.opcode is not Opcode.CONCATENATE or not _is_free(inner):
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
        not is_partitioned(b)
        or inner.opcode is not Opcode.RESHAPE
        or not x.array_shape.num_elements
    ):
        return None
    source = inner.operand(0)
    if not (_is_free(inner) or source.opcode is Opcode.SLICE):
        return None
    if non_unit(source.array_shape) != non_unit(inner.array_shape):
        return None
    non_unit_dims = iter(d for d, n in enumerate(inner.dims) if n != 1)
    starts, limits, strides = [], [], []
    for size in source.dims:
        d = next(non_unit_dims) if size != 1 else None
        starts.append(cut.starts[d] if d is not None else 0)
        limits.append(cut.limits[d] if d is not None else 1)
        strides.append(cut.strides[d] if d is not None else 1)
    return b.reshape(b.slice(source, starts, limits, strides), x.dims)


@simplifies(Opcode.GATHER)
def gather_of_elementwise(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """gather(f(a, c), i) => f(gather(a, i), c) if c is constant in each row that a batching dimension numbers

    The result of f is then not written, unless a reader other than gathers, reductions and elementwise operations needs
    it in memory.
    """
    inner = x.operand(0)
    if not is_partitioned(b) or not _is_pointwise(inner) or not inner.dims or is_pinned(inner):
        return None
    if inner.is_root or FEW * x.array_shape.num_elements > inner.array_shape.num_elements:
        return None
    if not all(
        user.opcode in (Opcode.GATHER, Opcode.REDUCE) or definition(user.opcode).elementwise
        for user in inner.users
    ):
        return None
    arrays = {operand for operand in inner.operands if operand.dims and not _is_of_rows(operand, x)}
    if len(arrays) != 1:
        return None
    operands = [_gathered(operand, x, b) if operand.dims else operand for operand in inner.operands]
    return _again(inner, operands, x.dims, b)


def _is_of_rows(operand: HloInstruction, gather: HloInstruction) -> bool:
    """Return whether ``operand`` repeats values along all dimensions but batching dimensions of ``gather``."""
    batching = gather.attrs_as(GatherAttrs).operand_batching_dims
    return operand.opcode is Opcode.BROADCAST and set(batching).issuperset(broadcast_dims(operand))


def _gathered(operand: HloInstruction, gather: HloInstruction, b: Builder) -> HloInstruction:
    """Return what ``gather`` would take from ``operand``."""
    attrs = gather.attrs_as(GatherAttrs)
    if not _is_of_rows(operand, gather):
        return b.create(Opcode.GATHER, (operand, gather.operand(1)), attrs)
    batch = [d for d in range(len(gather.dims)) if d not in attrs.offset_dims]
    batch.insert(attrs.index_vector_dim, -1)  # the dimension of each one of the indices
    pairs = zip(attrs.operand_batching_dims, attrs.start_indices_batching_dims, strict=True)
    row = {d: batch[e] for d, e in pairs}
    dims = [row[d] for d in broadcast_dims(operand)]
    values = b.transpose_by(operand.operand(0), sorted(range(len(dims)), key=dims.__getitem__))
    return b.broadcast(values, sorted(dims), gather.dims)
