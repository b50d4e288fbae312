"""Times of collectives as NCCL's tuner estimates them: rings, trees and switches, each with three protocols.

The formulae are those of NCCL's tuner (github.com/NVIDIA/nccl, src/graph/tuning.cc); the description of a machine holds
the latencies and fractions. A flat ring passes through all members: of its rounds * (n - 1) steps, rounds * (nodes - 1)
leave a node. NCCL builds as many rings as a node has ports, so that the members of a node share the bytes that leave it
among their ports. A tree, which only an all-reduce uses, is a chain within a node and a pair of binary trees over
nodes. The switches of a node (NVLink SHARP) serve an all-reduce of all its devices. NCCL has no hierarchical algorithm
for several devices on each node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from collectives.communicator.kinds.op import LinkTraffic
from collectives.cost.estimator import CollectiveTime, LinkUse
from collectives.cost.placement import Pattern, Span
from collectives.cost.span_use import SpanUse, circles_outside
from spmd.machine.exchange import Multicast


def nccl_times(traffic: LinkTraffic, pattern: Pattern, size: float) -> Iterator[CollectiveTime]:
    """Yield the time of each algorithm and protocol that serves ``traffic``, one of a ring at least.

    ``size`` is S in bytes (``algorithms``). All exchanges of ``pattern`` have the same number of protocols.
    """
    ring = tuple(_ring(traffic, pattern, size))
    tree = tuple(_tree(traffic, pattern, size)) if _is_all_reduce(traffic) else ()
    for number in range(len(pattern.spans[0].exchange.protocols)):
        yield _ring_time(ring, number)
        if tree:
            yield _tree_time(tree, number)
    (first, *wider) = pattern.spans
    multicast = first.exchange.multicast
    if (
        multicast is not None
        and _is_all_reduce(traffic)
        and not wider
        and first.narrowest
        and pattern.size == first.exchange.devices
    ):
        yield _switch_time(traffic, first, multicast, size)


def _is_all_reduce(traffic: LinkTraffic) -> bool:
    return "tree" in traffic.algorithms and not traffic.from_root


def _ring(traffic: LinkTraffic, pattern: Pattern, size: float) -> Iterator[SpanUse]:
    sent = traffic.sent(pattern.size) * size
    inner = pattern.size
    for span, outer in zip(pattern.spans, circles_outside(pattern), strict=True):
        shared = sent * span.groups / span.senders
        yield SpanUse(span, shared, traffic.rounds * (inner - outer), span.senders)
        inner = outer


def _tree(traffic: LinkTraffic, pattern: Pattern, size: float) -> Iterator[SpanUse]:
    sent = traffic.rounds * size
    for span in pattern.spans:
        steps = span.fan - 1 if span.narrowest else math.ceil(math.log2(span.fan))
        shared = sent * span.groups / span.senders
        yield SpanUse(span, shared, traffic.rounds * steps, span.senders)


def _ring_time(uses: tuple[SpanUse, ...], number: int) -> CollectiveTime:
    """Return the time of a ring with protocol ``number``.

    If no two members lie on one node, no steps within a node hide a part of the steps over the network, which then
    take as long as those of a tree.
    """
    within_nodes = uses[0].span.narrowest
    protocols = [one.span.exchange.protocols[number] for one in uses]
    steps = [one.ring if within_nodes else one.tree for one in protocols]
    return _time("ring", uses, protocols[0].start, steps, [one.attained for one in protocols])


def _tree_time(uses: tuple[SpanUse, ...], number: int) -> CollectiveTime:
    protocols = [one.span.exchange.protocols[number] for one in uses]
    steps = [one.tree for one in protocols]
    return _time("tree", uses, protocols[0].start, steps, [one.tree_attained for one in protocols])


def _time(
    name: str, uses: tuple[SpanUse, ...], start: float, steps: list[float], attained: list[float]
) -> CollectiveTime:
    """Return the time of an algorithm whose steps take ``steps`` seconds on each span of ``uses``, which reach the
    fractions ``attained`` of the bandwidth.
    """
    latency = start + sum(one.steps * step for one, step in zip(uses, steps, strict=True))
    links = tuple(
        LinkUse(one.span.exchange.name, one.sent, one.port_seconds / share)
        for one, share in zip(uses, attained, strict=True)
    )
    return CollectiveTime(latency + max(link.seconds for link in links), name, links, latency)


def _switch_time(
    traffic: LinkTraffic, span: Span, multicast: Multicast, size: float
) -> CollectiveTime:
    """Return the time of an all-reduce by the switches of a node. A device sends each byte once."""
    seconds = traffic.sent(span.fan) * size / multicast.bandwidth
    link = LinkUse(span.exchange.name, size, seconds)
    return CollectiveTime(multicast.latency + seconds, "switch", (link,), multicast.latency)
