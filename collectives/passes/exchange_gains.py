"""What it saves to do a region around collectives in pieces.

That is known when they are written and priced; but layers are alike. Regions of one form are priced once, and what
products of one form take longer in pieces, once known, says of others that they cannot save enough.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from collectives.passes.exchange_pieces import ExchangePieces
from collectives.passes.exchange_region import EXCHANGES, ExchangeRegion
from collectives.passes.window_price import PRODUCTS, WindowPrices
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import group_key


@dataclass
class ExchangeGains:
    """rivals: seconds that collectives would save in another way, which pieces have to save beyond."""

    prices: WindowPrices
    rivals: Mapping[HloInstruction, float]
    _saved: dict[Hashable, float] = field(default_factory=dict)
    #: Seconds by which the pieces of a product take longer than it does, where it has been in pieces.
    _longer: dict[Hashable, float] = field(default_factory=dict)

    def of(self, way: ExchangePieces) -> float:
        return self._saving(way) - self._otherwise(way)

    def most(self, way: ExchangePieces) -> float:
        """What ``of`` does not exceed, as far as is known."""
        products = (x for x in way.region.members if x.opcode in PRODUCTS)
        longer = sum(self._longer.get(_product_form(x, way), 0.0) for x in products)
        return self._possible(way, longer) - self._otherwise(way)

    def possible(self, way: ExchangePieces) -> float:
        """Seconds that could be saved if pieces cost nothing."""
        return self._possible(way, 0.0)

    def _possible(self, way: ExchangePieces, longer: float) -> float:
        """Nothing hides more than it takes, and its first piece hides nothing. longer: that computing takes."""
        computing = self.prices.computing(way.region.members)
        sending = self.prices.sending(way.region.exchanges)
        return min(sending - longer, computing - (computing + longer) / way.pieces)

    def _otherwise(self, way: ExchangePieces) -> float:
        return sum(self.rivals.get(x, 0.0) for x in way.region.members)

    def _saving(self, way: ExchangePieces) -> float:
        key = way.pieces, form_of(way.region)
        if key not in self._saved:
            self._saved[key] = self._priced(way)
        return self._saved[key]

    def _priced(self, way: ExchangePieces) -> float:
        """It is written, priced and removed again."""
        computation = way.builder.computation
        before = len(computation)
        written = way.write()
        made = computation.newest(len(computation) - before)
        whole = chain.from_iterable(way.region.stages())
        saved = self.prices.seconds(whole, _share) - self.prices.seconds(made, _share)
        for member, pieces in written.pieces.items():
            if member.opcode in PRODUCTS:
                longer = self.prices.computing(pieces) - self.prices.computing([member])
                self._longer[_product_form(member, way)] = longer
        for x in reversed(made):
            computation.remove(x)
        return saved


def form_of(region: ExchangeRegion) -> Hashable:
    """Equal for regions that cost the same, whole and in pieces: what stands where, how it is cut, and who needs it."""
    place = {x: number for number, x in enumerate(region.members)}
    results = frozenset(place[x] for x in region.results)
    return tuple(_form(x, region, place) for x in region.members), results


def _product_form(x: HloInstruction, way: ExchangePieces) -> Hashable:
    operands = tuple(operand.shape for operand in x.operands)
    return x.opcode, x.shape, x.attrs, operands, way.region.along[x], way.pieces


def _form(
    x: HloInstruction, region: ExchangeRegion, place: Mapping[HloInstruction, int]
) -> Hashable:
    read = tuple(place.get(o, (o.opcode, o.shape)) for o in x.operands)
    attrs: Hashable = None
    if x.opcode in EXCHANGES:
        attrs = group_key(x), x.attrs_as(CollectiveAttrs).dimension
    elif x.opcode in PRODUCTS:
        attrs = x.attrs
    return x.opcode, x.shape, attrs, region.along[x], read


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
