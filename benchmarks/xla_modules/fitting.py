"""Values of inputs for which a module's result is defined."""

from __future__ import annotations

import numpy as np

from launch.data.inputs import Array
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs, GatherAttrs, ScatterAttrs
from spmd.ops.reduction import identity_value, reduction_kind
from spmd.shape import ArrayShape


def fitting(module: HloModule, arrays: list[Array]) -> list[Array]:
    """Return ``arrays`` with values that the program is defined for, where parameters are operands of these kinds.

    A run-time size is no larger than its dimension, and what a reduction starts from is its neutral element: padding
    and parts of a reduction that start by themselves would count any other value more than once. Indices that a gather
    or a scatter declares sorted or unique are.
    """
    for number, parameter in enumerate(module.entry.parameters):
        if not isinstance(parameter.shape, ArrayShape):
            return arrays  # then the arrays are parts of the parameters
        for user in parameter.users:
            if user.opcode is Opcode.SET_DIMENSION_SIZE and user.operand(1) is parameter:
                bound = user.dims[user.attrs_as(DimensionsAttrs).dimensions[0]]
                arrays[number] = np.minimum(arrays[number], bound).astype(arrays[number].dtype)
            elif parameter in starts(user) and (kind := reduction_kind(user.to_apply)) is not None:
                neutral = identity_value(kind, parameter.array_shape.element_type)
                arrays[number] = np.full_like(arrays[number], neutral)
            elif parameter is indices_of(user):
                arrays[number] = declared_indices(user, arrays[number])
    return arrays


def starts(x: HloInstruction) -> tuple[HloInstruction, ...]:
    """Return the operands that a reduction starts from."""
    if x.opcode in (Opcode.REDUCE, Opcode.REDUCE_WINDOW):
        return x.operands[x.num_operands // 2 :]
    return x.operands[2:] if x.opcode is Opcode.SELECT_AND_SCATTER else ()


def indices_of(x: HloInstruction) -> HloInstruction | None:
    """Return the indices of a gather or a scatter."""
    if x.opcode is Opcode.GATHER:
        return x.operand(1)
    return x.operand(x.num_operands // 2) if x.opcode is Opcode.SCATTER else None


def declared_indices(x: HloInstruction, indices: Array) -> Array:
    """Return ``indices`` sorted or without repetition, as a gather or a scatter declares them."""
    attrs = x.attrs
    assert isinstance(attrs, GatherAttrs | ScatterAttrs)
    is_unique = isinstance(attrs, ScatterAttrs) and attrs.unique_indices
    if not (is_unique or attrs.indices_are_sorted) or _is_batched(attrs):
        return indices
    has_vectors = attrs.index_vector_dim < indices.ndim
    vectors = (
        np.moveaxis(indices, attrs.index_vector_dim, -1) if has_vectors else indices[..., None]
    )
    flat = vectors.reshape(-1, vectors.shape[-1])
    room = _starts_inside(x, attrs)
    if is_unique and 0 < len(flat) <= int(np.prod(room)):
        places = np.arange(len(flat)) * (int(np.prod(room)) // len(flat))
        flat = np.stack(np.unravel_index(places, room), axis=-1)
    else:
        flat = flat[np.lexsort(flat.T[::-1])]
    found = flat.reshape(vectors.shape).astype(indices.dtype)
    return np.moveaxis(found, -1, attrs.index_vector_dim) if has_vectors else found[..., 0]


def _is_batched(attrs: GatherAttrs | ScatterAttrs) -> bool:
    if isinstance(attrs, GatherAttrs):
        return bool(attrs.operand_batching_dims)
    return bool(attrs.input_batching_dims)


def _starts_inside(x: HloInstruction, attrs: GatherAttrs | ScatterAttrs) -> tuple[int, ...]:
    """Return for each component of an index how many values leave the window inside the operand."""
    dims = x.operand(0).dims
    if isinstance(attrs, GatherAttrs):
        return tuple(dims[d] - attrs.slice_sizes[d] + 1 for d in attrs.start_index_map)
    updates = x.operands[-1].dims
    windows = iter(attrs.update_window_dims)
    sizes = [
        1 if d in attrs.inserted_window_dims else updates[next(windows)] for d in range(len(dims))
    ]
    return tuple(dims[d] - sizes[d] + 1 for d in attrs.scatter_dims_to_operand_dims)
