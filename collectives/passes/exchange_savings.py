"""Saved time if a region around collectives is computed in pieces.

It is known once the pieces are written and estimated. Layers repeat, so regions of equal structure are estimated once;
and the known costs of pieces of equal structure (of a product, of an operand that it reads in parts, of an assembled
result) show for other regions that they cannot save enough.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field
from itertools import chain

from collectives.passes.exchange_pieces import ExchangePieces, WrittenPieces
from collectives.passes.exchange_region import ExchangeRegion
from collectives.passes.windowed_cost import PRODUCTS, WindowedCostModel
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Unsplit:
    """Seconds of a ``region`` that is not split.

    seconds: in all. sending, computing: of its exchanges, and of its products. otherwise: what another pass would save.
    """

    region: ExchangeRegion
    seconds: float
    sending: float
    computing: float
    otherwise: float


@dataclass
class ExchangeSavings:
    """Savings by splitting regions into pieces. ``rivals``: by collective, the seconds that another pass would save;
    pieces must save more.
    """

    cost_model: WindowedCostModel
    rivals: Mapping[HloInstruction, float]
    _saved: dict[Hashable, float] = field(default_factory=dict)
    #: Seconds of a region that is not split.
    _unsplit_by_key: dict[Hashable, float] = field(default_factory=dict)
    #: Known additional seconds of computing in pieces.
    _costs: dict[Hashable, float] = field(default_factory=dict)
    #: The region that was asked for last: one is asked for with several numbers of pieces.
    _last: _Unsplit | None = None

    def of(self, way: ExchangePieces) -> float:
        return self._saving(way) - self._unsplit(way.region).otherwise

    def most(self, way: ExchangePieces) -> float:
        """Return an upper bound of ``of``, from the costs that are known."""
        members = way.region.members
        keys = [_product_key(x, way) for x in members if x.opcode in PRODUCTS]
        keys += [_result_key(x, way) for x in way.region.results]
        keys += [_part_key(x, dim, way) for x, dim in _read_in_parts(way.region)]
        unsplit = self._unsplit(way.region)
        least = unsplit.computing + sum(self._costs.get(key, 0.0) for key in keys)
        return unsplit.seconds - least - unsplit.otherwise

    def possible(self, way: ExchangePieces) -> float:
        """Return the seconds that would be saved if pieces cost nothing and each exchange waited for the first piece
        only.
        """
        unsplit = self._unsplit(way.region)
        return min(unsplit.sending, unsplit.computing * (1 - 1 / way.pieces))

    def _unsplit(self, region: ExchangeRegion) -> _Unsplit:
        if self._last is None or self._last.region is not region:
            key = region.structural_key
            if key not in self._unsplit_by_key:
                members = chain.from_iterable(region.stages())
                self._unsplit_by_key[key] = self.cost_model.seconds(members, _share)
            self._last = _Unsplit(
                region,
                self._unsplit_by_key[key],
                self.cost_model.sending(region.exchanges),
                self.cost_model.computing(region.members),
                sum(self.rivals.get(x, 0.0) for x in region.members),
            )
        return self._last

    def _saving(self, way: ExchangePieces) -> float:
        key = way.pieces, way.region.structural_key
        if key not in self._saved:
            self._saved[key] = self._estimate(way)
        return self._saved[key]

    def _estimate(self, way: ExchangePieces) -> float:
        """Return the seconds saved. The pieces are written, their cost is estimated, and they are removed again."""
        computation = way.builder.computation
        before = len(computation)
        written = way.write()
        made = computation.newest(len(computation) - before)
        saved = self._unsplit(way.region).seconds - self.cost_model.seconds(made, _share)
        self._learn(way, written)
        for x in reversed(made):
            computation.remove(x)
        return saved

    def _learn(self, way: ExchangePieces, written: WrittenPieces) -> None:
        computing, kernel = self.cost_model.computing, self.cost_model.kernel
        for member, pieces in written.pieces.items():
            if member.opcode in PRODUCTS:
                self._costs[_product_key(member, way)] = computing(pieces) - computing([member])
        for result, joined in written.results.items():
            if joined.opcode is Opcode.CONCATENATE:
                self._costs[_result_key(result, way)] = kernel(joined)
        for x, dim in _read_in_parts(way.region):
            parts = written.parts[x, dim]
            self._costs[_part_key(x, dim, way)] = sum(map(kernel, parts))


def _product_key(x: HloInstruction, way: ExchangePieces) -> Hashable:
    operands = tuple(operand.shape for operand in x.operands)
    return x.opcode, x.shape, x.attrs, operands, way.region.along[x], way.pieces


def _result_key(x: HloInstruction, way: ExchangePieces) -> Hashable:
    return x.shape, way.region.along[x].result, way.pieces


def _part_key(x: HloInstruction, dim: int, way: ExchangePieces) -> Hashable:
    return x.shape, dim, way.pieces, "part"


def _read_in_parts(region: ExchangeRegion) -> Iterator[tuple[HloInstruction, int]]:
    """Yield the operands that products read in parts, and along which dimension."""
    found: dict[tuple[HloInstruction, int], None] = {}
    for x in region.members:
        if x.opcode in PRODUCTS:
            for operand, dim in zip(x.operands, region.along[x].operands, strict=True):
                if dim is not None and operand not in region.along:
                    found[operand, dim] = None
    yield from found


def _share(x: HloInstruction) -> float:
    """Return the part of the time of ``x`` that counts: products, slices that products read, and concatenations. Other
    instructions will be fused.

    All terms of a sum are read by one kernel: each further one is a third of what an addition moves.
    """
    if x.opcode is Opcode.ADD:
        terms = sum(operand.opcode in PRODUCTS for operand in x.operands)
        return (0.0, 1 / 3, 1.0)[terms]
    if x.opcode is Opcode.SLICE:
        return float(any(user.opcode in PRODUCTS for user in x.users))
    return float(x.opcode in PRODUCTS or x.opcode is Opcode.CONCATENATE)
