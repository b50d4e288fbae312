"""The collective that an instruction starts, and the bytes that its members exchange."""

from __future__ import annotations

import math

from collectives.communicator.kinds.all_kinds import KIND_NAMED
from collectives.communicator.kinds.op import Collective
from collectives.cost.estimator import CostError
from spmd.analysis.wire import result_bytes
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode_roles import wrapped
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.opdef import SizeOf, byte_size
from spmd.shape import ArrayShape, leaves


def collective_of(x: HloInstruction) -> HloInstruction:
    """Return the collective that ``x`` is, or wraps as an async-start. Raises CostError if there is none."""
    collective = wrapped(x)
    if collective.opcode not in KIND:
        raise CostError(f"{x!r}: {collective.opcode} has no collective cost model")
    return collective


def kind_of(collective: HloInstruction) -> type[Collective]:
    """Return the class of the kind of ``collective``."""
    return KIND_NAMED[KIND[collective.opcode]]


def exchanged_bytes(collective: HloInstruction, members: int, size_of: SizeOf = byte_size) -> float:
    """Return the bytes S that a group of ``members`` exchanges (``algorithms``), by the collective's kind.

    ``size_of`` gives the bytes of arrays.
    """
    if isinstance(collective.attrs, CollectivePermuteAttrs) and collective.attrs.slice_sizes:
        return _slice_bytes(collective, collective.attrs)
    first_operand = float(size_of(collective.operand(0).shape))
    results = float(result_bytes(collective, size_of))
    return kind_of(collective).exchanged_bytes(first_operand, results, members)


def _slice_bytes(permute: HloInstruction, attrs: CollectivePermuteAttrs) -> float:
    """Return the bytes of the slices that are moved in place; all buffers have one element type."""
    kinds = (
        leaf.element_type
        for _, leaf in leaves(permute.operand(0).shape)
        if isinstance(leaf, ArrayShape)
    )
    return float(next(kinds).byte_size * sum(map(math.prod, attrs.slice_sizes)))
