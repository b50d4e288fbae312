"""Gathers whose operand need not be computed entirely: rows of another gather, and positions."""

from __future__ import annotations

import math
from dataclasses import replace

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import GatherAttrs, IotaAttrs
from spmd.passes.algebraic.match import used_once
from spmd.shape import PrimitiveType

#: Type -> number of bits up to which integers are exact.
_EXACT_BITS = {
    PrimitiveType.BF16: 8,
    PrimitiveType.F16: 11,
    PrimitiveType.F32: 24,
    PrimitiveType.F64: 53,
}


@dataclass(frozen=True)
class Composition:
    """gather(gather(x, i), j) as gather(x, gather(i, j)): the attributes of both, inner one first.

    The inner one takes index vectors out of i, whose vector dimension is moved to the end.
    """

    indices: GatherAttrs
    rows: GatherAttrs


def gather_of_gather(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """gather(gather(x, i), j) => gather(x, gather(i, j)), if j chooses among index vectors of i and fewer bytes are
    read and written.

    j is clamped to the number of vectors in both, and i to the size of x.
    """
    inner = x.operand(0)
    found = match_composition(x)
    if found is None or not used_once(inner):
        return None
    vectors = _with_vectors_last(inner.operand(1), inner.attrs_as(GatherAttrs), b)
    chosen = b.create(Opcode.GATHER, (vectors, x.operand(1)), found.indices)
    return b.create(Opcode.GATHER, (inner.operand(0), chosen), found.rows)


def match_composition(x: HloInstruction) -> Composition | None:
    inner, attrs = x.operand(0), x.attrs_as(GatherAttrs)
    if inner.opcode is not Opcode.GATHER or attrs.operand_batching_dims:
        return None
    taken = inner.attrs_as(GatherAttrs)
    if taken.operand_batching_dims or attrs.collapsed_slice_dims != attrs.start_index_map:
        return None
    (d, *others) = attrs.start_index_map or (-1,)
    batch = [e for e in range(len(inner.dims)) if e not in taken.offset_dims]
    row_sizes = tuple(1 if e == d else size for e, size in enumerate(inner.dims))
    if others or d not in batch or attrs.slice_sizes != row_sizes:
        return None
    rest = [e for e in range(len(inner.dims)) if e != d]
    result_dim = dict(zip(rest, attrs.offset_dims, strict=True))
    chosen = [p for p in range(len(x.dims)) if p not in attrs.offset_dims]
    vectors = sorted([*chosen, *(result_dim[e] for e in batch if e != d)])
    sizes = [*(inner.dims[e] for e in batch), len(taken.start_index_map)]
    moved = 2 * math.prod(x.dims[p] for p in vectors) * sizes[-1] * _index_bytes(inner)
    if moved > 2 * inner.shape.byte_size:
        return None
    among = batch.index(d)
    indices = replace(
        attrs,
        offset_dims=(*(vectors.index(result_dim[e]) for e in batch if e != d), len(vectors)),
        collapsed_slice_dims=(among,),
        start_index_map=(among,),
        slice_sizes=tuple(1 if e == among else size for e, size in enumerate(sizes)),
    )
    rows = replace(
        taken,
        offset_dims=tuple(result_dim[e] for e in taken.offset_dims),
        index_vector_dim=len(vectors),
        indices_are_sorted=False,
    )
    return Composition(indices, rows)


def _index_bytes(gather: HloInstruction) -> int:
    return gather.operand(1).array_shape.element_type.byte_size


def _with_vectors_last(indices: HloInstruction, attrs: GatherAttrs, b: Builder) -> HloInstruction:
    d, rank = attrs.index_vector_dim, len(indices.dims)
    if d == rank:
        return b.reshape(indices, (*indices.dims, 1))
    if d == rank - 1:
        return indices
    return b.transpose(indices, [*(e for e in range(rank) if e != d), d])


def gather_of_iota(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """gather(iota, i) => i, clamped as by the gather, if slices have one element along the iota's dimension"""
    iota, attrs = x.operand(0), x.attrs_as(GatherAttrs)
    if iota.opcode is not Opcode.IOTA:
        return None
    d = iota.attrs_as(IotaAttrs).dimension
    if d not in attrs.start_index_map or attrs.slice_sizes[d] != 1:
        return None
    if not _is_exact(iota.array_shape.element_type, iota.dims[d]):
        return None
    starts = _component(x.operand(1), attrs, attrs.start_index_map.index(d), b)
    kind = starts.array_shape.element_type
    last = min(iota.dims[d] - 1, (1 << (kind.bits - kind.is_signed_integer)) - 1)
    clamped = b.clamp(b.scalar(kind, 0), starts, b.scalar(kind, last))
    values = b.convert(clamped, iota.array_shape.element_type)
    batch = [p for p in range(len(x.dims)) if p not in attrs.offset_dims]
    return b.broadcast(values, batch, x.dims)


def _is_exact(kind: PrimitiveType, size: int) -> bool:
    """Return whether the positions of `size` elements are numbers of `kind`."""
    bits = kind.bits - kind.is_signed_integer if kind.is_integer else _EXACT_BITS.get(kind, 0)
    return 0 < size <= 1 << bits


def _component(
    indices: HloInstruction, attrs: GatherAttrs, number: int, b: Builder
) -> HloInstruction:
    """Return element `number` of every index vector."""
    d = attrs.index_vector_dim
    if d == len(indices.dims):
        return indices
    one = b.slice_along(indices, d, number, number + 1)
    return b.reshape(one, [n for e, n in enumerate(indices.dims) if e != d])
