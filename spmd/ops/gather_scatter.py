"""gather and scatter: slices at computed positions (XLA's operation semantics, section Gather).

gather: one slice of ``slice_sizes`` per index vector; result dimensions ``offset_dims`` run inside the slice, the
others over the index vectors. scatter: the inverse, combining updates by its reducer.
"""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import GatherAttrs, ScatterAttrs
from spmd.ops.checks import (
    bare,
    check_callees,
    check_dims,
    check_length,
    check_signature,
    check_sorted,
    one_or_tuple,
    operand_array,
    plain,
    result_elements,
    same_type,
    scalar_of,
)
from spmd.ops.opdef import SizeOf, define
from spmd.shape import ArrayShape, Shape


def index_batch_dims(indices: ArrayShape, index_vector_dim: int) -> tuple[int, ...]:
    """Return the dimensions of the index operand that count index vectors; ``index_vector_dim == rank`` means
    scalars.
    """
    if not 0 <= index_vector_dim <= indices.rank:
        raise ShapeError(f"index_vector_dim={index_vector_dim} must lie in 0..{indices.rank}")
    return tuple(d for d in range(indices.rank) if d != index_vector_dim)


def _check_index_map(
    indices: ArrayShape, index_vector_dim: int, index_map: tuple[int, ...], rank: int, what: str
) -> None:
    if not indices.element_type.is_integer:
        raise ShapeError(f"indices must be integers, found {indices}")
    length = 1 if index_vector_dim == indices.rank else indices.dims[index_vector_dim]
    check_length(index_map, length, what)
    check_dims(index_map, rank, what)


# ---- gather
def infer_gather(instruction: HloInstruction) -> Shape:
    operand, indices = operand_array(instruction, 0), operand_array(instruction, 1)
    attrs = instruction.attrs_as(GatherAttrs)
    batch = index_batch_dims(indices, attrs.index_vector_dim)
    _check_gather(operand, indices, attrs)
    dropped = attrs.collapsed_slice_dims + attrs.operand_batching_dims
    inside = [n for d, n in enumerate(attrs.slice_sizes) if d not in dropped]
    outside = [indices.dims[d] for d in batch]
    rank = len(inside) + len(outside)
    check_length(attrs.offset_dims, len(inside), "offset_dims")
    check_dims(attrs.offset_dims, rank, "offset_dims")
    offset, batches = iter(inside), iter(outside)
    return bare(
        operand.element_type,
        (next(offset if d in attrs.offset_dims else batches) for d in range(rank)),
    )


def _check_gather(operand: ArrayShape, indices: ArrayShape, attrs: GatherAttrs) -> None:
    check_length(attrs.slice_sizes, operand.rank, "slice_sizes")
    if any(not 0 <= size <= n for size, n in zip(attrs.slice_sizes, operand.dims, strict=True)):
        raise ShapeError(f"slice_sizes {list(attrs.slice_sizes)} exceed the operand {operand}")
    _check_index_map(
        indices, attrs.index_vector_dim, attrs.start_index_map, operand.rank, "start_index_map"
    )
    check_sorted(attrs.offset_dims, "offset_dims")
    check_sorted(attrs.collapsed_slice_dims, "collapsed_slice_dims")
    dropped = attrs.collapsed_slice_dims + attrs.operand_batching_dims
    check_dims(dropped, operand.rank, "collapsed and batching dimensions")
    if any(attrs.slice_sizes[d] > 1 for d in dropped):
        raise ShapeError("collapsed and batching dimensions take slices of size 1")
    _check_batching(
        operand, attrs.operand_batching_dims, indices, attrs.start_indices_batching_dims
    )


def _check_batching(
    operand: ArrayShape,
    operand_dims: tuple[int, ...],
    indices: ArrayShape,
    index_dims: tuple[int, ...],
) -> None:
    check_sorted(operand_dims, "batching dimensions of the operand")
    check_length(index_dims, len(operand_dims), "batching dimensions of the indices")
    check_dims(index_dims, indices.rank, "batching dimensions of the indices")
    for a, b in zip(operand_dims, index_dims, strict=True):
        if operand.dims[a] != indices.dims[b]:
            raise ShapeError(
                f"batching sizes differ: operand dimension {a} of {operand}, index dimension {b} of {indices}"
            )


def gather_bytes(instruction: HloInstruction, size_of: SizeOf) -> float:
    return 2.0 * size_of(instruction.shape) + size_of(instruction.operand(1).shape)


# ---- scatter
def num_scattered(instruction: HloInstruction) -> int:
    """Return the number of scattered inputs: operands are n inputs, one index array, n updates."""
    if instruction.num_operands < 3 or instruction.num_operands % 2 == 0:
        raise ShapeError(
            f"scatter takes n inputs, indices and n updates, found {instruction.num_operands} operands"
        )
    return instruction.num_operands // 2


def infer_scatter(instruction: HloInstruction) -> Shape:
    n = num_scattered(instruction)
    return one_or_tuple(plain(x.shape) for x in instruction.operands[:n])


def verify_scatter(instruction: HloInstruction) -> None:
    n, attrs = num_scattered(instruction), instruction.attrs_as(ScatterAttrs)
    indices = operand_array(instruction, n)
    check_sorted(attrs.update_window_dims, "update_window_dims")
    check_sorted(attrs.inserted_window_dims, "inserted_window_dims")
    for i in range(n):
        _check_scatter(
            operand_array(instruction, i), indices, operand_array(instruction, n + 1 + i), attrs
        )
    _verify_combiner(instruction, n)


def _check_scatter(
    operand: ArrayShape, indices: ArrayShape, updates: ArrayShape, attrs: ScatterAttrs
) -> None:
    if updates.element_type is not operand.element_type:
        raise ShapeError(f"updates {updates} have another element type than the operand {operand}")
    batch = index_batch_dims(indices, attrs.index_vector_dim)
    to_operand = attrs.scatter_dims_to_operand_dims
    _check_index_map(
        indices, attrs.index_vector_dim, to_operand, operand.rank, "scatter_dims_to_operand_dims"
    )
    dropped = attrs.inserted_window_dims + attrs.input_batching_dims
    check_dims(dropped, operand.rank, "inserted and batching dimensions")
    check_dims(attrs.update_window_dims, updates.rank, "update_window_dims")
    window = [d for d in range(operand.rank) if d not in dropped]
    check_length(attrs.update_window_dims, len(window), "update_window_dims")
    for u, d in zip(attrs.update_window_dims, window, strict=True):
        if updates.dims[u] > operand.dims[d]:
            raise ShapeError(
                f"update dimension {u} of {updates} is larger than dimension {d} of {operand}"
            )
    outside = tuple(n for d, n in enumerate(updates.dims) if d not in attrs.update_window_dims)
    if outside != tuple(indices.dims[d] for d in batch):
        raise ShapeError(f"updates {updates} do not hold one window per index vector of {indices}")
    _check_batching(
        operand, attrs.input_batching_dims, indices, attrs.scatter_indices_batching_dims
    )


def _verify_combiner(instruction: HloInstruction, n: int) -> None:
    check_callees(instruction, 1)
    returned = result_elements(instruction.to_apply.root.shape)
    wanted = tuple(scalar_of(x.shape) for x in instruction.operands[:n])
    if len(returned) != n or any(
        not same_type(a, b) for a, b in zip(returned, wanted, strict=True)
    ):
        raise ShapeError(
            f"combiner {instruction.to_apply.name} returns {instruction.to_apply.root.shape}"
        )
    check_signature(instruction.to_apply, wanted + wanted, "combiner")


def scatter_applications(instruction: HloInstruction) -> tuple[float, ...]:
    return (float(operand_array(instruction, num_scattered(instruction) + 1).num_elements),)


def scatter_bytes(instruction: HloInstruction, size_of: SizeOf) -> float:
    """Count the bytes: updates read, the same elements of the operand read and written, the indices read."""
    n = num_scattered(instruction)
    updates = sum(size_of(x.shape) for x in instruction.operands[n + 1 :])
    return 3.0 * updates + size_of(instruction.operand(n).shape)


define(Opcode.GATHER, infer_gather, 2, bytes_accessed=gather_bytes)
define(
    Opcode.SCATTER,
    infer_scatter,
    None,
    verify_scatter,
    bytes_accessed=scatter_bytes,
    applications=scatter_applications,
)
