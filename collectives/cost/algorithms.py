"""Costs of collectives on links: one-shot, ring, tree and hierarchical algorithms, of which the fastest is used.

Alpha-beta model (R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in MPICH,
2005): each step takes a latency, each byte its share of the port. n members exchange S bytes: the operand of an
all-reduce or reduce-scatter, the result of an all-gather, the operand of an all-to-all or broadcast. As in NCCL, a
message travels in chunks, so that the phases of one algorithm overlap: the busiest port decides, and latencies add up.

    ring          neighbour to neighbour around all members: (n-1)/n S bytes and n-1 steps, twice for an all-reduce.
                  Where it leaves a circle, it does so over one port.
    tree          two binary trees, each for half of the bytes (P. Sanders, J. Speck, J. Traeff, Two-tree algorithms for
                  full bandwidth broadcast, reduction and scan, 2009): S bytes and log2 steps; in all-reduces twice.
    one-shot      each sends to each. In the narrowest circle, where peers address each other's memory, that is one
                  step; farther away one message after the other.
    hierarchical  a ring in each circle, narrowest first, on the piece that is left: NCCL's way with rails, where each
                  device of a node sends its piece over a port of its own. f parts of a circle: (f-1)/f of the piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from collectives.cost.estimator import CollectiveTime, LinkUse
from collectives.cost.placement import Pattern, Span


class Kind(Enum):
    """Collectives by the name of their synchronous form."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    RAGGED_ALL_TO_ALL = "ragged-all-to-all"
    BROADCAST = "collective-broadcast"
    PERMUTE = "collective-permute"


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Traffic of one exchange: bytes that a device sends over it, sequential steps, and the number of devices of a part
    that do the same at the same time.
    """

    span: Span
    sent: float
    steps: float
    sharing: int

    @property
    def port_seconds(self) -> float:
        way = self.span.exchange
        ports = min(way.ports or self.sharing, self.sharing)
        return self.sent / way.bandwidth * self.sharing / ports


_Algorithm: TypeAlias = Callable[[Kind, Pattern, float], Iterator[_Traffic]]

NOTHING = CollectiveTime(0.0, "none", ())


def quickest(kind: Kind, pattern: Pattern, size: float) -> CollectiveTime:
    """Return the time of the fastest algorithm for ``kind``, without the launch. size: S above, in bytes."""
    if not pattern.spans or not size:
        return NOTHING
    times = [
        _time(name, tuple(algorithm(kind, pattern, size)))
        for name, algorithm in _ALGORITHMS.items()
        if _serves(name, kind, pattern)
    ]
    best = min(times, key=lambda time: time.seconds)
    return replace(best, latency=min(time.latency for time in times))


def _serves(name: str, kind: Kind, pattern: Pattern) -> bool:
    if kind is Kind.PERMUTE:
        return name == "one-shot"
    if name == "ring":
        return kind not in _EACH_TO_EACH
    if name == "tree":
        return kind in (Kind.ALL_REDUCE, Kind.BROADCAST)
    return name == "one-shot" or (pattern.regular and len(pattern.spans) > 1)


def _time(name: str, traffic: tuple[_Traffic, ...]) -> CollectiveTime:
    links = tuple(LinkUse(one.span.exchange.name, one.sent, one.port_seconds) for one in traffic)
    latency = sum(one.steps * one.span.exchange.latency for one in traffic)
    return CollectiveTime(latency + max(link.seconds for link in links), name, links, latency)


_EACH_TO_EACH = (Kind.ALL_TO_ALL, Kind.RAGGED_ALL_TO_ALL)


def _rounds(kind: Kind) -> int:
    """An all-reduce is a reduce-scatter and an all-gather."""
    return 2 if kind is Kind.ALL_REDUCE else 1


def _ring(kind: Kind, pattern: Pattern, size: float) -> Iterator[_Traffic]:
    n, rounds = pattern.size, _rounds(kind)
    sent = size if kind is Kind.BROADCAST else rounds * (n - 1) / n * size
    inner = n
    for span, outer in zip(pattern.spans, _parts_outside(pattern), strict=True):
        yield _Traffic(span, sent, rounds * (inner - outer), span.groups)
        inner = outer


def _parts_outside(pattern: Pattern) -> list[int]:
    """Circles of each exchange that the group stands in."""
    counts = [
        math.prod(span.fan for span in pattern.spans[i + 1 :]) for i in range(len(pattern.spans))
    ]
    return [min(count, pattern.size) for count in counts]


def _tree(kind: Kind, pattern: Pattern, size: float) -> Iterator[_Traffic]:
    rounds, piece = _rounds(kind), size
    for span in pattern.spans:
        shared = pattern.regular and kind is Kind.ALL_REDUCE
        steps = rounds * math.ceil(math.log2(span.fan))
        yield _Traffic(span, rounds * piece, steps, span.senders if shared else span.groups)
        piece /= span.fan if shared else 1


def _one_shot(kind: Kind, pattern: Pattern, size: float) -> Iterator[_Traffic]:
    to_each = (
        size if kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.PERMUTE) else size / pattern.size
    )
    near = 1
    for span in pattern.spans:
        reached = min(near * span.fan, pattern.size)
        peers = reached - near
        sharing = span.groups if kind is Kind.BROADCAST else span.senders
        yield _Traffic(span, peers * to_each, 1 if span.narrowest else peers, sharing)
        near = reached


def _hierarchical(kind: Kind, pattern: Pattern, size: float) -> Iterator[_Traffic]:
    piece = size
    for i, span in enumerate(pattern.spans):
        fraction = (span.fan - 1) / span.fan
        rounds = _rounds(kind)
        if kind is Kind.BROADCAST:
            widest = i == len(pattern.spans) - 1
            rounds, fraction = (1, 1.0) if widest else (2, fraction)
        yield _Traffic(span, rounds * fraction * piece, rounds * (span.fan - 1), span.senders)
        if kind not in _EACH_TO_EACH:
            piece /= span.fan


_ALGORITHMS: dict[str, _Algorithm] = {
    "one-shot": _one_shot,
    "ring": _ring,
    "tree": _tree,
    "hierarchical": _hierarchical,
}
