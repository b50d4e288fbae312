"""All-gathers of random groups, for the triggers of passes that look at them."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CollectiveAttrs
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.devices import equal_groups, ids_of, meeting, reducing_mode
from tests.spmd.passes.triggers.programs import Program


def all_gather(
    p: Program, operands: Sequence[HloInstruction], attrs: CollectiveAttrs
) -> HloInstruction:
    return p.b.create(Opcode.ALL_GATHER, operands, attrs)


def random_gather(p: Program, operands: Sequence[HloInstruction], dimension: int) -> HloInstruction:
    """Return an all-gather over random groups of equal size, in any form."""
    mode = reducing_mode(p)
    return all_gather(p, operands, meeting(p, mode, equal_groups(p, ids_of(p, mode)), dimension))


def part(p: Program, element_type: PrimitiveType, low: int = 1) -> HloInstruction:
    """Return a small array that something can be gathered from."""
    return p.value(element_type, p.dims(low, 3, empty=False, most=48))
