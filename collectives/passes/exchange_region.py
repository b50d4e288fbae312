"""Regions around collectives that can be computed in pieces with them, along a dimension that they leave alone.

    dot -> all-to-all[experts, capacity, model] -> dot, silu, dot -> all-to-all -> dot
    dot -> all-reduce[batch, model] -> add, dot

Capacity is free in the products and the all-to-alls do not touch it, so all of this can be done for one part of it
after the other, and the all-to-all of one part is under way while products of another are computed. An all-reduce
touches no dimension. *Exchanges* are the collectives of such kinds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property

from collectives.passes.dot_dimensions import Role, dot_dimensions
from collectives.passes.windowed_cost import PRODUCTS
from spmd.analysis.split_rules import Along, length_along, ways_to_split
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, DotAttrs
from spmd.ops.groups import group_key
from spmd.passes.rewrite import is_pinned
from spmd.shape import ArrayShape

#: Collectives that can be done in pieces: they have one array, and each piece of the result depends on a piece of the
#: operand.
EXCHANGES = (Opcode.ALL_TO_ALL, Opcode.ALL_REDUCE, Opcode.ALL_GATHER, Opcode.REDUCE_SCATTER)
#: Largest number of instructions that are examined around one exchange.
_MOST = 1024
#: Regions that are tried: numbers of successive products before the exchanges and after them.
_REACHES = ((1, 1), (1, 0), (2, 2), (3, 3))


@dataclass(frozen=True)
class ExchangeRegion:
    """A region around collectives: ``members``, operands first, and how each of them is split. ``exchanges``: the
    collectives for which the region was made.
    """

    members: tuple[HloInstruction, ...]
    along: Mapping[HloInstruction, Along]
    exchanges: tuple[HloInstruction, ...]

    def has_pieces(self, count: int) -> bool:
        """Return whether every member can be split into so many equal parts."""
        return all(length_along(x, way) % count == 0 for x, way in self.along.items())

    @property
    def results(self) -> tuple[HloInstruction, ...]:
        """Members that others read, but for what they can go on reading as it is."""
        return tuple(
            x
            for x in self.members
            if not _is_leaf(self.along[x])
            and (x.is_root or any(u not in self.along for u in x.users))
        )

    @cached_property
    def structural_key(self) -> Hashable:
        """Return a key that is equal for regions of equal cost, unsplit and in pieces: their ops, splits and uses."""
        position = {x: number for number, x in enumerate(self.members)}
        results = frozenset(position[x] for x in self.results)
        return tuple(self._key_at(x, position) for x in self.members), results

    def _key_at(self, x: HloInstruction, position: Mapping[HloInstruction, int]) -> Hashable:
        read = tuple(position.get(o, (o.opcode, o.shape)) for o in x.operands)
        attrs: Hashable = None
        if _is_exchange(x):
            attrs = group_key(x), x.attrs_as(CollectiveAttrs).dimension
        elif x.opcode in PRODUCTS:
            attrs = x.attrs
        return x.opcode, x.shape, attrs, self.along[x], read

    def stages(self) -> list[list[HloInstruction]]:
        """Return the members by the number of successive exchanges that they wait for."""
        position: dict[HloInstruction, int] = {}
        for member in self.members:
            read = [x for x in member.operands if x in position]
            position[member] = max((position[x] + _is_exchange(x) for x in read), default=0)
        stages: list[list[HloInstruction]] = [[] for _ in range(max(position.values()) + 1)]
        for member, stage in position.items():
            stages[stage].append(member)
        return stages


def exchange_regions(
    exchange: HloInstruction,
    wanted: Iterable[HloInstruction],
    known: Mapping[HloInstruction, int],
    ways: dict[HloInstruction, tuple[Along, ...]],
) -> Iterator[ExchangeRegion]:
    """Yield the regions of ``exchange``: for it and others of ``wanted``, or for it alone, each with more or fewer
    products around.

    ``known``: the possible members, each with its position in an order in which operands come first. ``ways``: the ways
    to cut instructions that are known already; others are added.
    """
    wanted = tuple(wanted)
    for way in exchange_ways(exchange):
        flood = _Flood(known, exchange, way, ways)
        connected = tuple(x for x in wanted if x in flood.along)
        seen = set()
        for exchanges in dict.fromkeys((connected, (exchange,))):
            for before, behind in _REACHES:
                members = flood.around(exchanges, before, behind)
                along = {x: flood.along[x] for x in sorted(members, key=known.__getitem__)}
                region = ExchangeRegion(tuple(along), along, exchanges)
                if region.members not in seen:
                    seen.add(region.members)
                    yield region


def exchange_ways(x: HloInstruction) -> tuple[Along, ...]:
    """Return one way per dimension that the collective leaves alone: each piece is sent to the same devices as the
    array.
    """
    attrs, shape = x.attrs_as(CollectiveAttrs), x.shape
    if attrs.constrain_layout or is_pinned(x) or x.num_operands != 1:
        return ()
    if attrs.dimension is None and x.opcode is not Opcode.ALL_REDUCE:
        return ()
    if not isinstance(shape, ArrayShape) or any(shape.dynamic):
        return ()
    untouched = [d for d, size in enumerate(shape.dims) if d != attrs.dimension and size > 1]
    return tuple(Along(d, (d,)) for d in untouched)


def region_ways(x: HloInstruction) -> tuple[Along, ...]:
    """Return the ways to cut ``x``. Products are also cut along contracting dimensions: narrow terms are added in
    f32."""
    if is_pinned(x):
        return ()
    if _is_exchange(x):
        return exchange_ways(x)
    ways = ways_to_split(x)
    if ways and is_summed_wider(x):
        summed = (d for d in dot_dimensions(x) if d.role is Role.CONTRACTING)
        ways += tuple(Along(None, d.operands, Opcode.ADD) for d in summed)
    return ways


def is_summed_wider(x: HloInstruction) -> bool:
    """Return whether ``x`` is a product whose partial sums have a wider type than its result."""
    if x.opcode is not Opcode.DOT or x.attrs_as(DotAttrs).extra:
        return False
    kind = x.array_shape.element_type
    return kind.accumulator is not kind


@dataclass
class _Flood:
    """All that can be cut with ``start``, whatever it is good for: operands and users, as far as they agree."""

    known: Mapping[HloInstruction, int]
    start: HloInstruction
    way: Along
    ways: dict[HloInstruction, tuple[Along, ...]]
    along: dict[HloInstruction, Along] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.start in self.known:
            self._add(self.start, self.way)
        work = deque(self.along)
        while work:
            x = work.popleft()
            if _is_leaf(self.along[x]):
                continue
            for neighbour in (*self._operands_cut(x), *self._users_cutting(x)):
                if neighbour in self.along or len(self.along) >= _MOST:
                    continue
                if any(self._add(neighbour, way) for way in self._ways_of(neighbour)):
                    work.append(neighbour)

    def _ways_of(self, x: HloInstruction) -> tuple[Along, ...]:
        """Return the ways to cut ``x``, none if it cannot be a member."""
        if x not in self.known:
            return ()
        if x not in self.ways:
            self.ways[x] = region_ways(x)
        return self.ways[x]

    def _operands_cut(self, x: HloInstruction) -> Iterator[HloInstruction]:
        for operand, dim in zip(x.operands, self.along[x].operands, strict=True):
            if dim is not None:
                yield operand

    def _users_cutting(self, x: HloInstruction) -> Iterator[HloInstruction]:
        if self.along[x].result is not None:
            yield from x.users

    def _add(self, x: HloInstruction, way: Along) -> bool:
        """Add ``x``, split in this way, if its operands and users among the members are split accordingly. Returns
        whether it was added.
        """
        if not (self._reads_as_cut(x, way) and self._is_read_as(x, way)):
            return False
        self.along[x] = way
        return True

    def _reads_as_cut(self, x: HloInstruction, way: Along) -> bool:
        cut = [(dim, self.along.get(o)) for o, dim in zip(x.operands, way.operands, strict=True)]
        return all(along is None or dim == along.result is not None for dim, along in cut)

    def _is_read_as(self, x: HloInstruction, way: Along) -> bool:
        return all(
            dim == way.result is not None
            for user in x.users
            if user in self.along
            for operand, dim in zip(user.operands, self.along[user].operands, strict=True)
            if operand is x
        )

    def around(
        self, exchanges: Iterable[HloInstruction], before: int, behind: int
    ) -> dict[HloInstruction, None]:
        """Return ``exchanges``, the values between them, chains of ``before`` products before and ``behind`` products
        after them, and values that only these read.
        """
        exchanges = list(exchanges)
        needed = _reached(exchanges, self._read)
        members = {x: None for x in _reached(exchanges, self._readers) if x in needed}
        members |= self._up_to_products(exchanges, self._read, before)
        members |= self._up_to_products(exchanges, self._readers, behind)
        work = list(members)
        while work:
            for x in self._read(work.pop()):
                if x not in members and self._comes_along(x, members):
                    members[x] = None
                    work.append(x)
        return members

    def _comes_along(self, x: HloInstruction, members: Mapping[HloInstruction, None]) -> bool:
        """Return whether ``x`` is no product and no exchange, and is free or only read by members."""
        if x.opcode in PRODUCTS or _is_exchange(x):
            return False
        return _is_leaf(self.along[x]) or all(user in members for user in x.users)

    def _up_to_products(
        self,
        exchanges: list[HloInstruction],
        neighbours: Callable[[HloInstruction], Iterable[HloInstruction]],
        products: int,
    ) -> dict[HloInstruction, None]:
        """Return the values from ``exchanges`` up to (and including) so many successive products, without other
        exchanges.
        """

        def nearer(x: HloInstruction) -> list[HloInstruction]:
            found = neighbours(x) if x.opcode not in PRODUCTS else ()
            return [y for y in found if not _is_exchange(y)]

        found: dict[HloInstruction, None] = {}
        edge = exchanges
        for _ in range(products):
            found |= _reached(edge, nearer)
            ends = [x for x in found if x.opcode in PRODUCTS]
            edge = [y for x in ends for y in neighbours(x) if not _is_exchange(y)]
        return found

    def _read(self, x: HloInstruction) -> list[HloInstruction]:
        return [operand for operand in self._operands_cut(x) if operand in self.along]

    def _readers(self, x: HloInstruction) -> list[HloInstruction]:
        return [user for user in self._users_cutting(x) if user in self.along]


def _is_exchange(x: HloInstruction) -> bool:
    return x.opcode in EXCHANGES


def _is_leaf(way: Along) -> bool:
    """Return whether no operand is split, as by a broadcast along a new dimension: all pieces are equal and cost
    nothing.
    """
    return way.result is not None and all(dim is None for dim in way.operands)


def _reached(
    starts: Iterable[HloInstruction],
    neighbours: Callable[[HloInstruction], Iterable[HloInstruction]],
) -> dict[HloInstruction, None]:
    """Return ``starts`` and all instructions that are reachable from them."""
    found = dict.fromkeys(starts)
    work = list(found)
    while work:
        for x in neighbours(work.pop()):
            if x not in found:
                found[x] = None
                work.append(x)
    return found
