"""Sums of reduce-scatters become reduce-scatters of sums."""

from __future__ import annotations

from typing import ClassVar

from collectives.passes.reassociation import Reassociation
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class ReduceScatterReassociate(Reassociation):
    """add(reduce-scatter(a), reduce-scatter(b))  =>  reduce-scatter(add(a, b))    of the same devices and dimension

    Other reductions are moved in the same way. Each device then adds the entire arrays instead of its own parts, and
    half as many bytes are sent. Floats are added in another order.
    """

    name: ClassVar[str] = "reduce-scatter-reassociate"
    opcode: ClassVar[Opcode] = Opcode.REDUCE_SCATTER
