"""Positions held in data."""

from __future__ import annotations

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import GatherAttrs, ScatterAttrs
from tests.differential.factors.table import (
    INDEXED,
    PASS,
    PERMUTATION,
    REDUCTION,
    WHOLE,
    Factor,
    Factors,
    everywhere,
    factor,
    rows,
)


# ---- positions in data
@rows((PASS, INDEXED), Opcode.DYNAMIC_SLICE)
def _dynamic_slice(instruction: HloInstruction) -> Factors:
    for d, size in enumerate(instruction.operand(0).dims):
        kind = PASS if instruction.dims[d] == size else INDEXED
        yield factor(kind, {0: d}, {0: d})


@rows((PASS, INDEXED), Opcode.DYNAMIC_UPDATE_SLICE)
def _dynamic_update_slice(instruction: HloInstruction) -> Factors:
    update = instruction.operand(1).dims
    for d, size in enumerate(instruction.dims):
        yield factor(PASS if update[d] == size else INDEXED, {0: d, 1: d}, {0: d})


@rows((PASS, PERMUTATION, INDEXED, WHOLE), Opcode.GATHER)
def _gather(instruction: HloInstruction) -> Factors:
    """A dimension that no index moves but that is not taken in full is a slice: permutation."""
    attrs = instruction.attrs_as(GatherAttrs)
    table, ids = instruction.operand(0).dims, instruction.operand(1).dims
    batching = dict(
        zip(attrs.start_indices_batching_dims, attrs.operand_batching_dims, strict=True)
    )
    loops = [p for p in range(instruction.array_shape.rank) if p not in attrs.offset_dims]
    for position, d in zip(
        loops, [d for d in range(len(ids)) if d != attrs.index_vector_dim], strict=True
    ):
        yield factor(PASS, {1: d} | ({0: batching[d]} if d in batching else {}), {0: position})
    if attrs.index_vector_dim < len(ids):
        yield factor(WHOLE, {1: attrs.index_vector_dim}, {})
    dropped = (*attrs.collapsed_slice_dims, *attrs.operand_batching_dims)
    offsets = iter(attrs.offset_dims)
    for d, size in enumerate(table):
        results = {} if d in dropped else {0: next(offsets)}
        if d in attrs.operand_batching_dims:
            continue
        if d in attrs.start_index_map:
            yield factor(INDEXED, {0: d}, results)
        else:
            yield factor(PASS if attrs.slice_sizes[d] == size else PERMUTATION, {0: d}, results)


@rows((PASS, REDUCTION, PERMUTATION, INDEXED, WHOLE), Opcode.SCATTER)
def _scatter(instruction: HloInstruction) -> Factors:
    attrs = instruction.attrs_as(ScatterAttrs)
    n = instruction.num_operands // 2
    shape, ids = instruction.operand(0).dims, instruction.operand(n).dims
    updates = instruction.operand(n + 1).dims
    batching = dict(
        zip(attrs.scatter_indices_batching_dims, attrs.input_batching_dims, strict=True)
    )

    def at(inputs: int | None, index: int | None, update: int | None) -> Factor:
        operands = {} if inputs is None else everywhere(n, inputs)
        results = dict(operands)
        if index is not None:
            operands[n] = index
        if update is not None:
            operands |= {n + 1 + i: update for i in range(n)}
        return factor("", operands, results)

    loops = [p for p in range(len(updates)) if p not in attrs.update_window_dims]
    for position, d in zip(
        loops, [d for d in range(len(ids)) if d != attrs.index_vector_dim], strict=True
    ):
        kind = PASS if d in batching else REDUCTION
        yield Factor(kind, at(batching.get(d), d, position).places)
    if attrs.index_vector_dim < len(ids):
        yield Factor(WHOLE, at(None, attrs.index_vector_dim, None).places)
    windows = iter(attrs.update_window_dims)
    for d, size in enumerate(shape):
        if d in attrs.input_batching_dims:
            continue
        window = None if d in attrs.inserted_window_dims else next(windows)
        if d in attrs.scatter_dims_to_operand_dims:
            kind = INDEXED
        else:
            kind = PASS if window is not None and updates[window] == size else PERMUTATION
        yield Factor(kind, at(d, None, window).places)
