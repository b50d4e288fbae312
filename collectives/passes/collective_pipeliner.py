"""Loops whose collectives run a trip earlier or later than what needs or makes their data."""

from __future__ import annotations

from typing import ClassVar

from collectives.passes.pipelined_gathers import gather_ahead, gathers_to_move
from collectives.passes.pipelined_reductions import reduce_later, reductions_to_move
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass
from spmd.passes.loop_pass import LoopPass
from spmd.passes.loop_peeling import match_counted
from spmd.passes.while_state import Loop, has_effects


@register_pass
@dataclass(frozen=True)
class CollectivePipeliner(LoopPass):
    """Overlap collectives of one trip with the computation of another.

    Gathers of arrays that the loop does not change, at indices that the trip's number determines, are done in the
    trip before (weights of the next layer); the last trip is written after the loop. Reductions whose result is
    only written into an array that the loop does not read otherwise are done in the trip after (gradients of the
    last layer); the first trip is written before the loop. Collectives with less than ``min_bytes`` (gathered, or
    to be reduced) stay. The same number of bytes is sent, and no value changes; the values live one trip longer.
    """

    name: ClassVar[str] = "collective-pipeliner"
    min_bytes: int = 1 << 16

    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        counted = None if has_effects(loop, effects) else match_counted(loop)
        if counted is None:
            return False
        changed = False
        reductions = reductions_to_move(counted, effects, self.min_bytes)
        if reductions:
            counted = reduce_later(counted, reductions, builder, effects)
            changed = True
        if counted.trips > 1:
            gathers = gathers_to_move(counted, effects, self.min_bytes)
            if gathers:
                gather_ahead(counted, gathers, builder, effects)
                changed = True
        return changed
