"""Collectives that nothing hides, in pieces with the products around them: one is sent while another is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import ClassVar

from collectives.passes.exchange_pieces import ExchangePieces
from collectives.passes.exchange_region import EXCHANGES, ExchangeRegion, exchange_regions
from collectives.passes.exchange_savings import ExchangeSavings
from collectives.passes.windowed_cost import WindowedCostModel
from collectives.passes.windowed_einsum import WindowedEinsum
from spmd.analysis.side_effects import SideEffects
from spmd.analysis.split_rules import Along
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import MACHINE_OPTION, register_pass
from spmd.passes.options import PassOptionError
from spmd.passes.rewrite import replace_and_prune

#: Numbers of pieces among which the machine chooses.
_TRIED = (2, 4, 8)
#: Least part of what could be gained.
_MIN_GAIN = 0.1


@register_pass
@dataclass(frozen=True)
class ExchangePipeliner(FueledPass):
    """all-to-all(dot(x, y))      =>  concatenate(all-to-all(dot(part of x, y)), all-to-all(dot(next part of x, y)))
    dot(z, all-to-all(dot(x, y))) =>  dot(part of z, all-to-all(dot(part of x, y))) + dot(next part of z, ..)

    Parts of a dimension that runs through products and all-to-alls, as a mixture of experts' capacity does; the second
    form where the last product sums over it. ``pieces``: how many, or 0 for 2 or what is best on the ``machine``.
    Where one is named, those stay that other work hides, or of which too little would be gained of what could be, and
    all where nothing is computed while bytes move. windows: also those of which more is gained by
    ``windowed-einsum``, which is to come.
    """

    name: ClassVar[str] = "exchange-pipeliner"
    pieces: int = 0
    machine: MachineDescription | None = field(default=None, metadata=MACHINE_OPTION)
    windows: bool = False

    def __post_init__(self) -> None:
        if self.pieces < 0 or self.pieces == 1:
            raise PassOptionError(
                f"option pieces of {self.name}: expected 0, or 2 or more, found {self.pieces}"
            )

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        machine = self.machine
        if machine is not None and not machine.overlaps:
            return False
        savings = None
        if machine is not None:
            savings = ExchangeSavings(WindowedCostModel(module, machine), self._rivals(module))
        scope, effects = ModuleScope(module), SideEffects()
        changed = False
        for computation in module.computations_post_order():
            builder = Builder(computation, scope)
            for way in fuel.enough_for(self._found(builder, savings)):
                changed = True
                for old, new in way.write().results.items():
                    replace_and_prune(old, new, effects)
        return changed

    def _rivals(self, module: HloModule) -> dict[HloInstruction, float]:
        """Return the seconds that windowed einsums would save for each collective."""
        if not self.windows:
            return {}
        windows = WindowedEinsum(machine=self.machine)
        savings = windows.savings(module).items()
        return {x: gain.saved for x, gain in savings if gain.share >= windows.min_gain}

    def _found(self, builder: Builder, savings: ExchangeSavings | None) -> Iterator[ExchangePieces]:
        """Yield the regions to be written in pieces, one after the other."""
        computation = builder.computation
        exchanges = list(computation.with_opcode(*EXCHANGES))
        if savings is not None and exchanges:
            exchanges = savings.cost_model.needing(computation, exchanges)
        known = {x: n for n, x in enumerate(computation.post_order())} if exchanges else {}
        wanted, ways = dict.fromkeys(exchanges), dict[HloInstruction, tuple[Along, ...]]()
        for exchange in exchanges:
            if exchange not in wanted:
                continue
            regions = exchange_regions(exchange, wanted, known, ways)
            way = self._best(regions, builder, savings)
            for x in (exchange, *(way.region.exchanges if way is not None else ())):
                wanted.pop(x, None)
            if way is not None:
                yield way

    def _best(
        self, regions: Iterable[ExchangeRegion], builder: Builder, savings: ExchangeSavings | None
    ) -> ExchangePieces | None:
        """Return the division into pieces that saves most; None if that is not enough."""
        tried = (self.pieces,) if self.pieces else _TRIED if savings is not None else _TRIED[:1]
        ways = (
            ExchangePieces(region, n, builder)
            for region in regions
            for n in tried
            if region.has_pieces(n)
        )
        if savings is None:
            return next(ways, None)
        best, most = None, 0.0
        for way in ways:
            # An estimate may promise more than is possible: such a region is not even written.
            is_possible = savings.possible(way) > most and savings.most(way) > most
            if is_possible and (gain := savings.of(way)) > most:
                best, most = way, gain
        if best is None or most < _MIN_GAIN * savings.possible(best):
            return None
        return best
