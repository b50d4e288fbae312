"""Sums of all-reduces become all-reduces of sums."""

from __future__ import annotations

from typing import ClassVar

from collectives.passes.reassociation import Reassociation
from collectives.passes.reduced import OPERATIONS, moves_exactly
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class AllReduceReassociate(Reassociation):
    """add(all-reduce(a), all-reduce(b))  =>  all-reduce(add(a, b))    and so for other reductions, of the same devices

    reduce(all-reduce(a), 0)              =>  all-reduce(reduce(a, 0))

    What moves elements, and conversions that the reduction does not feel, go before the all-reduce (``moves_exactly``).
    Integers stay what they were, floats are added in another order.
    """

    name: ClassVar[str] = "all-reduce-reassociate"
    opcode: ClassVar[Opcode] = Opcode.ALL_REDUCE
    opcodes: ClassVar[tuple[Opcode, ...]] = (*OPERATIONS, Opcode.REDUCE)

    def moves(self, step: HloInstruction, kind: ReductionKind) -> bool:
        return moves_exactly(step, kind)
