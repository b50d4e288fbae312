"""Evaluation of gather and scatter: slices of an operand at positions that an index array names.

gather clamps start indices so that each slice lies inside the operand. scatter skips a window that is not entirely
inside, as XLA does. Windows combine one after the other, in row-major order of the index vectors, whichever dimensions
of the updates are window dimensions: if windows overlap, the update of the last index vector is applied last.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spmd.evaluator.combine import combine_at
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of, packed
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.iota import strides_of
from spmd.ops.attrs import GatherAttrs, ScatterAttrs


@evaluates(Opcode.GATHER)
def evaluate_gather(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: operand [..], start_indices [..]; result: batch dimensions and offset dimensions,
    interleaved.

    Dimensions taken entirely stay slices; all others are indexed by arrays over (batch dims, partial offset dims).
    """
    x, indices = arrays_of(operands)
    attrs = _full_at_run_time(instruction, x.shape)
    if attrs.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    vectors = np.moveaxis(indices, attrs.index_vector_dim, -1)
    rank, batch_rank = len(instruction.dims), vectors.ndim - 1
    skipped = (*attrs.collapsed_slice_dims, *attrs.operand_batching_dims)
    offset_of = dict(
        zip((d for d in range(x.ndim) if d not in skipped), attrs.offset_dims, strict=True)
    )
    full = [d for d in offset_of if _is_full_slice(attrs, d, x.shape)]
    partial = [d for d in offset_of if d not in full]
    indexed = [d for d in range(x.ndim) if d not in full]

    index_rank = batch_rank + len(partial)
    index = [_index(attrs, x.shape, vectors, d, partial, index_rank) for d in indexed]
    rows = x.transpose([*indexed, *full])
    taken = (
        rows[tuple(index)] if index else np.broadcast_to(rows, (*vectors.shape[:-1], *rows.shape))
    )
    sizes = [*vectors.shape[:-1], *(attrs.slice_sizes[d] for d in partial)]
    taken = np.broadcast_to(taken, [*sizes, *(x.shape[d] for d in full)])

    batch_dims = [d for d in range(rank) if d not in attrs.offset_dims]
    produced = [*batch_dims, *(offset_of[d] for d in partial), *(offset_of[d] for d in full)]
    return taken.transpose(np.argsort(produced))


def _full_at_run_time(instruction: HloInstruction, sizes: tuple[int, ...]) -> GatherAttrs:
    """Return attributes in which a dimension that is taken entirely stays so if ``sizes`` are below the bounds."""
    attrs, bounds = instruction.attrs_as(GatherAttrs), instruction.operand(0).dims
    if sizes == bounds:
        return attrs
    taken = zip(attrs.slice_sizes, bounds, sizes, strict=True)
    return replace(attrs, slice_sizes=tuple(n if n < bound else size for n, bound, size in taken))


def _is_full_slice(attrs: GatherAttrs, d: int, dims: tuple[int, ...]) -> bool:
    """Return whether the slice spans the dimension, so that clamping leaves only start 0."""
    return attrs.slice_sizes[d] == dims[d]


def _index(
    attrs: GatherAttrs,
    dims: tuple[int, ...],
    vectors: NDArray,
    d: int,
    partial: list[int],
    index_rank: int,
) -> NDArray:
    """Return the index into operand dimension ``d``, broadcastable over (batch dims, partial offset dims)."""
    batch_rank = vectors.ndim - 1
    tail = [1] * (index_rank - batch_rank)
    index: NDArray = np.zeros([1] * index_rank, np.int64)
    if d in attrs.start_index_map:
        start = vectors[..., attrs.start_index_map.index(d)]
        # Clamp before the cast: an unsigned index above 2**63 must not become negative.
        start = (
            np.clip(start, 0, dims[d] - attrs.slice_sizes[d])
            if start.dtype.kind == "u"
            else np.clip(start.astype(np.int64), 0, dims[d] - attrs.slice_sizes[d])
        )
        index = start.astype(np.int64).reshape([*vectors.shape[:-1], *tail])
    if d in attrs.operand_batching_dims:
        position = attrs.start_indices_batching_dims[attrs.operand_batching_dims.index(d)]
        axis = position if position < attrs.index_vector_dim else position - 1
        index = np.arange(vectors.shape[axis]).reshape(
            [-1 if a == axis else 1 for a in range(index_rank)]
        )
    if d in partial:
        axis = batch_rank + partial.index(d)
        along = np.arange(attrs.slice_sizes[d])
        index = index + along.reshape([-1 if a == axis else 1 for a in range(index_rank)])
    return index


@evaluates(Opcode.SCATTER)
def evaluate_scatter(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: n operands [..], indices [..], n updates [..]."""
    attrs = instruction.attrs_as(ScatterAttrs)
    arrays = arrays_of(operands)
    count = len(arrays) // 2
    inputs, indices, updates = arrays[:count], arrays[count], arrays[count + 1 :]
    positions, inside = _flat_indices(attrs, inputs[0].shape, indices, updates[0].shape)
    results = [np.array(x).reshape(-1) for x in inputs]

    def in_order(x: NDArray) -> NDArray:
        return _by_index_vector(attrs, x).reshape(-1)

    flat, ordered = in_order(positions), [in_order(u) for u in updates]
    if not inside.all():
        keep = in_order(np.broadcast_to(inside, positions.shape))
        flat, ordered = flat[keep], [u[keep] for u in ordered]
    combine_at(instruction.to_apply, results, flat, ordered)
    return packed(
        [r.reshape(x.shape) for r, x in zip(results, inputs, strict=True)], instruction.shape
    )


def _by_index_vector(attrs: ScatterAttrs, x: NDArray) -> NDArray:
    """Transpose ``x``, which has the updates' dimensions: those of the index vectors first, then the windows'."""
    scatter_dims = [d for d in range(x.ndim) if d not in attrs.update_window_dims]
    return x.transpose([*scatter_dims, *attrs.update_window_dims])


def _flat_indices(
    attrs: ScatterAttrs, dims: tuple[int, ...], indices: NDArray, update_dims: tuple[int, ...]
) -> tuple[NDArray, NDArray]:
    """Return the flat operand index of every update element, and whether its window lies inside (broadcastable to
    updates).
    """
    rank = len(update_dims)
    scatter_dims = [d for d in range(rank) if d not in attrs.update_window_dims]
    if attrs.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    vectors = np.moveaxis(indices, attrs.index_vector_dim, -1)
    skipped = (*attrs.inserted_window_dims, *attrs.input_batching_dims)
    window_dims = [d for d in range(len(dims)) if d not in skipped]
    strides = strides_of(dims)

    def over_scatter_dims(x: NDArray) -> NDArray:
        return x.reshape([update_dims[d] if d in scatter_dims else 1 for d in range(rank)])

    positions = np.zeros([1] * rank, np.int64)
    inside = np.ones([1] * rank, np.bool_)
    window_sizes = {
        d: update_dims[u] for d, u in zip(window_dims, attrs.update_window_dims, strict=True)
    }
    for k, d in enumerate(attrs.scatter_dims_to_operand_dims):
        start = over_scatter_dims(vectors[..., k].astype(np.int64))
        inside = inside & (start >= 0) & (start <= dims[d] - window_sizes.get(d, 1))
        positions = positions + start * strides[d]
    for d, s in zip(attrs.input_batching_dims, attrs.scatter_indices_batching_dims, strict=True):
        axis = s if s < attrs.index_vector_dim else s - 1
        batch = np.arange(vectors.shape[axis]).reshape(
            [-1 if a == axis else 1 for a in range(vectors.ndim - 1)]
        )
        positions = (
            positions + over_scatter_dims(np.broadcast_to(batch, vectors.shape[:-1])) * strides[d]
        )
    for d, u in zip(window_dims, attrs.update_window_dims, strict=True):
        along = np.arange(update_dims[u]).reshape([-1 if a == u else 1 for a in range(rank)])
        positions = positions + along * strides[d]
    return np.broadcast_to(positions, update_dims), inside
