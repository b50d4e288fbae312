"""Products beside all-gathers and reduce-scatters, in parts: communication of one beside computation of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from collectives.passes.window_ring import Piece, WindowRing, pieces_of
from collectives.passes.windowed_gather import gathered_product, windowed_gather
from collectives.passes.windowed_scatter import scattered_product, windowed_scatter
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.passes.options import PassOptionError
from spmd.passes.rewrite import builder_at


@register_pass
@dataclass(frozen=True)
class WindowedEinsum(Simplifier):
    """dot(all-gather(x), y)  =>  dot(x, y) and, part by part, dot(collective-permute(..), y)
    reduce-scatter(dot(x, y))  =>  collective-permute(.. + dot(part of x, y)) + dot(part of x, y)

    Parts go round in circles of the collective's groups: as many bytes are sent. ``chunks``: of the gathered or
    scattered dimension; as many as devices, or a multiple where that divides. both_ways: every other one goes the other
    way round, for links that send both ways at once. Products that would become more than ``max_parts`` stay.
    """

    name: ClassVar[str] = "windowed-einsum"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.DOT, Opcode.REDUCE_SCATTER)
    chunks: int = 0
    both_ways: bool = False
    max_parts: int = 64

    def __post_init__(self) -> None:
        if self.chunks < 0:
            raise PassOptionError(f"option chunks of {self.name} is 0 or more, found {self.chunks}")

    def simplify(self, module: HloModule) -> Simplify:
        scope = ModuleScope(module)

        def windowed(x: HloInstruction) -> HloInstruction | None:
            return self._windowed(x, builder_at(x, scope))

        return windowed

    def _windowed(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        if x.opcode is Opcode.DOT:
            gathered = gathered_product(x)
            if gathered is None or not self._is_small(gathered.ring, gathered.tile):
                return None
            return windowed_gather(gathered, self._pieces(gathered.ring, gathered.tile), b)
        scattered = scattered_product(x)
        if scattered is None or not self._is_small(scattered.ring, scattered.tile):
            return None
        return windowed_scatter(scattered, self._pieces(scattered.ring, scattered.tile), b)

    def _is_small(self, ring: WindowRing, tile: int) -> bool:
        return tile > 0 and ring.size <= self.max_parts

    def _pieces(self, ring: WindowRing, tile: int) -> tuple[Piece, ...]:
        """Of each device's tile."""
        wanted = max(1, min(self.chunks, self.max_parts) // ring.size)
        return pieces_of(tile, wanted, both_ways=self.both_ways)
