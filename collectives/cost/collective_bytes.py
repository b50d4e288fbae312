"""Collective that an instruction begins, and the bytes that its members exchange."""

from __future__ import annotations

import math

from collectives.cost.algorithms import Kind
from collectives.cost.estimator import CostError
from spmd.analysis.wire import KIND, result_bytes
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import wrapped
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.shape import ArrayShape, leaves


def collective_of(x: HloInstruction) -> HloInstruction:
    """``x`` itself, or what an async-start wraps; CostError where that is no collective."""
    collective = wrapped(x)
    if collective.opcode not in KIND:
        raise CostError(f"{x!r}: {collective.opcode} is no collective whose time can be told")
    return collective


def kind_of(collective: HloInstruction) -> Kind:
    return Kind(KIND[collective.opcode])


def exchanged_bytes(collective: HloInstruction, members: int) -> float:
    """S of ``algorithms``: of a reduce-scatter its operand, of an all-gather its result, else what each device has.

    What a ragged all-to-all sends stands in its operands' values: at most its input.
    """
    if isinstance(collective.attrs, CollectivePermuteAttrs) and collective.attrs.slice_sizes:
        return _slice_bytes(collective, collective.attrs)
    if collective.opcode is Opcode.RAGGED_ALL_TO_ALL:
        return float(collective.operand(0).shape.byte_size)
    size = float(result_bytes(collective))
    return size * members if collective.opcode is Opcode.REDUCE_SCATTER else size


def _slice_bytes(permute: HloInstruction, attrs: CollectivePermuteAttrs) -> float:
    """Return the bytes of the slices that are moved in place; all buffers have one element type."""
    kinds = (
        leaf.element_type
        for _, leaf in leaves(permute.operand(0).shape)
        if isinstance(leaf, ArrayShape)
    )
    return float(next(kinds).byte_size * sum(map(math.prod, attrs.slice_sizes)))
