"""Products beside all-gathers and reduce-scatters, in parts: communication of one beside computation of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from collectives.passes.window_price import WindowGain, WindowPrices
from collectives.passes.window_ring import Piece, pieces_of
from collectives.passes.windowed_gather import GatheredProduct, gathered_product
from collectives.passes.windowed_scatter import ScatteredProduct, scattered_product
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.clone import clone_module
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.machine.named import machine_named
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.passes.options import PassOptionError
from spmd.passes.rewrite import builder_at, replace_and_prune

#: Pieces of a device's tile that are tried.
_MULTIPLES = (1, 2, 4)


@register_pass
@dataclass(frozen=True)
class WindowedEinsum(Simplifier):
    """dot(all-gather(x), y)  =>  dot(x, y) and, part by part, dot(collective-permute(..), y)
    reduce-scatter(dot(x, y))  =>  collective-permute(.. + dot(part of x, y)) + dot(part of x, y)

    Parts go round in circles of the collective's groups: as many bytes are sent. ``chunks``: of the gathered or
    scattered dimension, a multiple of the devices (0: as many, or what is best on the ``machine``). both_ways: every
    other one goes the other way round, for links that send both ways at once. Products that would become more than
    ``max_parts`` stay, and those of groups of more than ``max_ring`` devices; where a ``machine`` is named, also those
    of whose time it would gain less than ``min_gain``.
    """

    name: ClassVar[str] = "windowed-einsum"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.DOT, Opcode.REDUCE_SCATTER)
    chunks: int = 0
    both_ways: bool = False
    max_parts: int = 64
    max_ring: int = 8
    machine: str = ""
    min_gain: float = 0.05

    def __post_init__(self) -> None:
        if self.chunks < 0:
            raise PassOptionError(f"option chunks of {self.name} is 0 or more, found {self.chunks}")

    def simplify(self, module: HloModule) -> Simplify:
        return self._simplify(module, lambda _: None)

    def gains(self, module: HloModule) -> tuple[WindowGain, ...]:
        """Of all that could be done in parts, done or not; on the machine that is named."""
        found: list[WindowGain] = []
        copy = clone_module(module)
        simplify = self._simplify(copy, found.append)
        for computation in copy.computations_post_order():
            for x in self.walk(computation):
                simplify(x)
        return tuple(found)

    def _simplify(self, module: HloModule, say: Callable[[WindowGain], None]) -> Simplify:
        scope, effects = ModuleScope(module), SideEffects()
        prices = WindowPrices(module, machine_named(self.machine)) if self.machine else None
        needing = self._needing(module, prices)

        def windowed(x: HloInstruction) -> HloInstruction | None:
            found = self._matched(x)
            if found is None or (needing is not None and found.collective not in needing):
                return None
            builder = builder_at(x, scope)
            if prices is None:
                return found.in_parts(self._pieces(found, self.chunks), builder)
            ways = dict.fromkeys(self._pieces(found, n) for n in self._tried(found))
            gains = {way: _gain(found, way, x, prices, builder, effects) for way in ways}
            best = min(gains, key=lambda way: gains[way].parts)
            say(gains[best])
            return found.in_parts(best, builder) if gains[best].share >= self.min_gain else None

        return windowed

    def _needing(
        self, module: HloModule, prices: WindowPrices | None
    ) -> dict[HloInstruction, None] | None:
        """Collectives that nothing else hides; None where no machine is named."""
        if prices is None:
            return None
        needing: dict[HloInstruction, None] = {}
        for computation in module.computations_post_order():
            found = [self._matched(x) for x in computation.with_opcode(*self.opcodes)]
            collectives = [x.collective for x in found if x is not None]
            if collectives:
                needing.update(dict.fromkeys(prices.needing(computation, collectives)))
        return needing

    def _matched(self, x: HloInstruction) -> Windowed | None:
        found = gathered_product(x) if x.opcode is Opcode.DOT else scattered_product(x)
        most = min(self.max_parts, self.max_ring)
        small = found is not None and found.tile and found.ring.size <= most
        return found if small else None

    def _tried(self, found: Windowed) -> tuple[int, ...]:
        """Numbers of chunks among which the machine chooses."""
        if self.chunks:
            return (self.chunks,)
        return tuple(found.ring.size * n for n in _MULTIPLES)

    def _pieces(self, found: Windowed, chunks: int) -> tuple[Piece, ...]:
        """Of each device's tile."""
        wanted = max(1, min(chunks, self.max_parts) // found.ring.size)
        return pieces_of(found.tile, wanted, both_ways=self.both_ways)


Windowed: TypeAlias = GatheredProduct | ScatteredProduct


def _gain(
    found: Windowed,
    pieces: tuple[Piece, ...],
    x: HloInstruction,
    prices: WindowPrices,
    builder: Builder,
    effects: SideEffects,
) -> WindowGain:
    """Of doing ``x`` in ``pieces``: they are written, priced and removed again."""
    before = len(builder.computation)
    value = found.in_parts(pieces, builder)
    made = builder.computation.newest(len(builder.computation) - before)
    gain = prices.gain(found.dot, found.collective, made)
    replace_and_prune(value, x, effects)
    return gain
