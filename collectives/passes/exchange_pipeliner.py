"""Collectives that nothing hides, in pieces with the products around them: one is sent while another is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, TypeAlias

from collectives.passes.exchange_pieces import ExchangePieces
from collectives.passes.exchange_region import EXCHANGES, ExchangeRegion, exchange_regions
from collectives.passes.window_price import PRODUCTS, WindowPrices
from collectives.passes.windowed_einsum import WindowedEinsum
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.machine.named import machine_named
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.passes.options import PassOptionError
from spmd.passes.rewrite import replace_and_prune

#: Seconds that collectives save in another form.
Rivals: TypeAlias = Mapping[HloInstruction, float]

#: Numbers of pieces among which the machine chooses.
_TRIED = (2, 4, 8)


@register_pass
@dataclass(frozen=True)
class ExchangePipeliner(FueledPass):
    """all-to-all(dot(x, y))      =>  concatenate(all-to-all(dot(part of x, y)), all-to-all(dot(next part of x, y)))
    dot(z, all-to-all(dot(x, y))) =>  dot(part of z, all-to-all(dot(part of x, y))) + dot(next part of z, ..)

    Parts of a dimension that runs through products and all-to-alls, as a mixture of experts' capacity does; the second
    form where the last product sums over it. ``pieces``: how many, or 0 for 2 or what is best on the ``machine``.
    Where one is named, those stay that other work hides, or of which less than ``min_gain`` would be gained of what
    could be, and all where nothing is computed while bytes move. windows: also those of which more is gained by
    ``windowed-einsum``, which is to come.
    """

    name: ClassVar[str] = "exchange-pipeliner"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    pieces: int = 0
    machine: str = ""
    min_gain: float = 0.1
    windows: bool = False

    def __post_init__(self) -> None:
        if self.pieces < 0 or self.pieces == 1:
            raise PassOptionError(
                f"option pieces of {self.name} is 0, or 2 or more, found {self.pieces}"
            )

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        machine = machine_named(self.machine) if self.machine else None
        if machine is not None and not machine.overlaps:
            return False
        prices = WindowPrices(module, machine) if machine is not None else None
        rivals = self._rivals(module)
        scope, effects = ModuleScope(module), SideEffects()
        changed = False
        for computation in module.computations_post_order():
            builder = Builder(computation, scope)
            for way in fuel.enough_for(self._found(builder, prices, rivals)):
                changed = True
                for old, new in way.write().items():
                    replace_and_prune(old, new, effects)
        return changed

    def _rivals(self, module: HloModule) -> Rivals:
        if not self.windows or not self.machine:
            return {}
        windows = WindowedEinsum(machine=self.machine)
        gains = windows.gains(module).items()
        return {x: gain.saved for x, gain in gains if gain.share >= windows.min_gain}

    def _found(
        self, builder: Builder, prices: WindowPrices | None, rivals: Rivals
    ) -> Iterator[ExchangePieces]:
        """What is to be written, one after the other."""
        computation = builder.computation
        exchanges = list(computation.with_opcode(*EXCHANGES))
        if prices is not None and exchanges:
            exchanges = prices.needing(computation, exchanges)
        known = {x: n for n, x in enumerate(computation.post_order())} if exchanges else {}
        wanted = dict.fromkeys(exchanges)
        for exchange in exchanges:
            if exchange not in wanted:
                continue
            regions = exchange_regions(exchange, wanted, known)
            way = self._best(regions, builder, prices, rivals)
            for x in (exchange, *(way.region.exchanges if way is not None else ())):
                wanted.pop(x, None)
            if way is not None:
                yield way

    def _best(
        self,
        regions: Iterable[ExchangeRegion],
        builder: Builder,
        prices: WindowPrices | None,
        rivals: Rivals,
    ) -> ExchangePieces | None:
        """How most is gained, if that is enough."""
        tried = (self.pieces,) if self.pieces else _TRIED if prices is not None else _TRIED[:1]
        ways = (
            ExchangePieces(region, n, builder)
            for region in regions
            for n in tried
            if region.has_pieces(n)
        )
        if prices is None:
            return next(ways, None)
        best, most = None, 0.0
        for way in ways:
            otherwise = sum(rivals.get(x, 0.0) for x in way.region.members)
            if _most_gained(way, prices) - otherwise <= most:
                continue
            gain = _gain(way, prices) - otherwise
            if gain > most:
                best, most = way, gain
        if best is None or most < self.min_gain * _most_gained(best, prices):
            return None
        return best


def _most_gained(way: ExchangePieces, prices: WindowPrices) -> float:
    """Seconds that cannot be exceeded: nothing hides more than it takes, and its first piece hides nothing."""
    computing = prices.computing(way.region.members)
    return min(prices.sending(way.region.exchanges), computing * (1 - 1 / way.pieces))


def _gain(way: ExchangePieces, prices: WindowPrices) -> float:
    """Seconds that it would save: it is written, priced and removed again."""
    computation = way.builder.computation
    before = len(computation)
    way.write()
    made = computation.newest(len(computation) - before)
    whole = chain.from_iterable(way.region.stages())
    gain = prices.seconds(whole, _share) - prices.seconds(made, _share)
    for x in reversed(made):
        computation.remove(x)
    return gain


def _share(x: HloInstruction) -> float:
    """Products, what they read a part of, and what puts pieces together count; whatever else there is will be fused.

    All terms of a sum are read by one kernel: each further one is a third of what an addition moves.
    """
    if x.opcode is Opcode.ADD:
        terms = sum(operand.opcode in PRODUCTS for operand in x.operands)
        return (0.0, 1 / 3, 1.0)[terms]
    if x.opcode is Opcode.SLICE:
        return float(any(user.opcode in PRODUCTS for user in x.users))
    return float(x.opcode in PRODUCTS or x.opcode is Opcode.CONCATENATE)
