"""Loops whose collectives run a trip earlier or later than what needs or makes their data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from collectives.passes.pipelined_gathers import gather_ahead, gathers_to_move
from collectives.passes.pipelined_reductions import reduce_later, reductions_to_move
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.module import Stage
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.passes.loop_pass import LoopPass
from spmd.passes.loop_peeling import match_counted
from spmd.passes.options import PassOptionError
from spmd.passes.while_state import Loop, has_effects

_DIRECTIONS = ("both", "backward", "forward")


@register_pass
@dataclass(frozen=True)
class CollectivePipeliner(LoopPass):
    """Let collectives of one trip run beside the computation of another.

    backward: what is gathered of arrays that the loop does not change, at places that the trip's number says, is
    gathered in the trip before (weights of the next layer); the last trip stands behind the loop. forward: what is
    reduced only to be put into an array that nothing else in the loop reads is reduced in the trip after (gradients of
    the last layer); the first trip stands before the loop. Arrays below ``min_bytes`` (of what is gathered, or to be
    reduced) stay. As many bytes are sent, no value changes; what is on its way lives through a trip.
    """

    name: ClassVar[str] = "collective-pipeliner"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    direction: str = "both"
    min_bytes: int = 1 << 16

    def __post_init__(self) -> None:
        if self.direction not in _DIRECTIONS:
            raise PassOptionError(
                f"option direction of {self.name} is {', '.join(_DIRECTIONS)}, found {self.direction!r}"
            )

    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        counted = None if has_effects(loop, effects) else match_counted(loop)
        if counted is None:
            return False
        changed = False
        if self.direction != "backward":
            reductions = reductions_to_move(counted, effects, self.min_bytes)
            if reductions:
                counted = reduce_later(counted, reductions, builder, effects)
                changed = True
        if self.direction != "forward" and counted.trips > 1:
            gathers = gathers_to_move(counted, effects, self.min_bytes)
            if gathers:
                gather_ahead(counted, gathers, builder, effects)
                changed = True
        return changed
