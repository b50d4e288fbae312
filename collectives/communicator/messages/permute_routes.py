"""Along which routes a permute moves what ranks hold: each rank sends to the next one of its route."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.communicator.kinds import CollectivePermute, Group


@dataclass(frozen=True)
class Route:
    """Each of ``ranks`` sends to the next. The last sends to the first, or nowhere: then that receives zeros.

    pairs ((0,1),(1,2),(3,4),(4,3))   =>   (0,1,2), no cycle, and (3,4), a cycle
    """

    ranks: Group
    is_cycle: bool


def has_routes(collective: CollectivePermute) -> bool:
    """Whether nobody sends to two: then every rank lies on exactly one route."""
    sources = [source for source, _ in collective.pairs]
    return len(set(sources)) == len(sources)


def route_through(collective: CollectivePermute, rank: int) -> Route:
    """The route on which ``rank`` lies, the same on each of its ranks; ``collective`` ``has_routes``."""
    before = {target: source for source, target in collective.pairs}
    after = dict(collective.pairs)
    first = rank
    while first in before and before[first] != rank:
        first = before[first]
    ranks = [first]
    while after.get(ranks[-1], first) != first:
        ranks.append(after[ranks[-1]])
    start = ranks.index(min(ranks)) if first in before else 0
    return Route((*ranks[start:], *ranks[:start]), is_cycle=first in before)
