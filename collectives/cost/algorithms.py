"""Costs of collectives on links: one-shot, ring, tree and hierarchical algorithms, of which the fastest is used.

The costs follow the alpha-beta model (R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication
Operations in MPICH, 2005): each step takes a latency, and each byte takes time on a port. n members exchange S bytes:
the operand of an all-reduce or reduce-scatter, the result of an all-gather, the operand of an all-to-all or broadcast.
As in NCCL, a message travels in chunks, so that the phases of one algorithm overlap. The time is therefore that of the
busiest port plus the sum of the latencies. ``placement`` defines circles and their parts.

    ring          Each member sends to its neighbour around all members: (n-1)/n S bytes and n-1 steps, both doubled for
                  an all-reduce. A ring leaves a circle over one port.
    tree          Two binary trees carry half of the bytes each (P. Sanders, J. Speck, J. Traeff, Two-tree algorithms
                  for full bandwidth broadcast, reduction and scan, 2009): S bytes and log2(n) steps, both doubled for
                  an all-reduce.
    one-shot      Each member sends to each other member: in one step within the narrowest circle, where members address
                  each other's memory, and one message after the other in wider circles.
    hierarchical  A ring in each circle, narrowest first, carries the piece that remains: (f-1)/f of the piece in a
                  circle of f parts.

Exchanges whose description has protocols are used as by NCCL: rings, trees and switches (``nccl``). Only kinds without
rings and trees, such as an all-to-all, use one-shot and hierarchical messages there as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from collectives.communicator.kinds.op import LinkTraffic
from collectives.cost.estimator import CollectiveTime, LinkUse
from collectives.cost.nccl import nccl_times
from collectives.cost.placement import Pattern
from collectives.cost.span_use import SpanUse, circles_outside

_Algorithm: TypeAlias = Callable[[LinkTraffic, Pattern, float], Iterator[SpanUse]]

NOTHING = CollectiveTime(0.0, "none", ())


def quickest(traffic: LinkTraffic, pattern: Pattern, size: float) -> CollectiveTime:
    """Return the time of the fastest algorithm for a collective with ``traffic``, without the launch of its kernel.

    ``size`` is S in bytes, as defined above. The latency of the result is the least of all algorithms.
    """
    if not pattern.spans or not size:
        return NOTHING
    if pattern.spans[0].exchange.protocols and {"ring", "tree"}.intersection(traffic.algorithms):
        times = list(nccl_times(traffic, pattern, size))
    else:
        times = [
            _time(name, tuple(algorithm(traffic, pattern, size)))
            for name, algorithm in _ALGORITHMS.items()
            if _serves(name, traffic, pattern)
        ]
    best = min(times, key=lambda time: time.seconds)
    return replace(best, latency=min(time.latency for time in times))


def _serves(name: str, traffic: LinkTraffic, pattern: Pattern) -> bool:
    """Return whether algorithm ``name`` can be used for ``traffic`` and ``pattern``."""
    if name == "hierarchical" and (len(pattern.spans) == 1 or not pattern.regular):
        return False
    return name == "one-shot" or name in traffic.algorithms


def _time(name: str, uses: tuple[SpanUse, ...]) -> CollectiveTime:
    """Return the time of an algorithm: the sum of the latencies and the seconds of the busiest port."""
    links = tuple(LinkUse(one.span.exchange.name, one.sent, one.port_seconds) for one in uses)
    latency = sum(one.steps * one.span.exchange.latency for one in uses)
    return CollectiveTime(latency + max(link.seconds for link in links), name, links, latency)


def _ring(traffic: LinkTraffic, pattern: Pattern, size: float) -> Iterator[SpanUse]:
    sent = traffic.sent(pattern.size) * size
    inner = pattern.size
    for span, outer in zip(pattern.spans, circles_outside(pattern), strict=True):
        yield SpanUse(span, sent, traffic.rounds * (inner - outer), span.groups)
        inner = outer


def _tree(traffic: LinkTraffic, pattern: Pattern, size: float) -> Iterator[SpanUse]:
    rounds, piece = traffic.rounds, size
    for span in pattern.spans:
        shared = pattern.regular and not traffic.from_root
        steps = rounds * math.ceil(math.log2(span.fan))
        yield SpanUse(span, rounds * piece, steps, span.senders if shared else span.groups)
        piece /= span.fan if shared else 1


def _one_shot(traffic: LinkTraffic, pattern: Pattern, size: float) -> Iterator[SpanUse]:
    to_each = size if traffic.sends_full_message else size / pattern.size
    inner = 1
    for span in pattern.spans:
        reached = min(inner * span.fan, pattern.size)
        peers = reached - inner
        sharers = span.groups if traffic.from_root else span.senders
        yield SpanUse(span, peers * to_each, 1 if span.narrowest else peers, sharers)
        inner = reached


def _hierarchical(traffic: LinkTraffic, pattern: Pattern, size: float) -> Iterator[SpanUse]:
    piece = size
    for i, span in enumerate(pattern.spans):
        fraction, rounds = (span.fan - 1) / span.fan, traffic.rounds
        if traffic.from_root:
            widest = i == len(pattern.spans) - 1
            rounds, fraction = (1, 1.0) if widest else (2, fraction)
        yield SpanUse(span, rounds * fraction * piece, rounds * (span.fan - 1), span.senders)
        if not traffic.each_to_each:
            piece /= span.fan


_ALGORITHMS: dict[str, _Algorithm] = {
    "one-shot": _one_shot,
    "ring": _ring,
    "tree": _tree,
    "hierarchical": _hierarchical,
}
