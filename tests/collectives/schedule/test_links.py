"""Ends of transfers on links: queued ones by hand, shared ones as the simulator has them."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from collectives.schedule.links import Links, QueuedLinks, SharedLinks, Transfer
from collectives.simulate import ports
from collectives.simulate.ports import Port

WAYS = ("near", "far")


def test_what_queues_waits_for_its_ports() -> None:
    links = QueuedLinks()
    links.open("a", Transfer(5.0, (("near", 3.0),)), 1.0)
    links.open("b", Transfer(2.0, (("near", 2.0), ("far", 1.0))), 2.0)
    links.open("c", Transfer(1.0, (("far", 1.0),)), 2.5)
    assert [links.span(key) for key in "abc"] == [(1.0, 6.0), (4.0, 6.0), (5.0, 6.0)]
    assert links.free_at(Transfer(1.0, (("near", 1.0),))) == 6.0


def test_what_shares_a_port_sends_at_half_the_rate() -> None:
    links = SharedLinks()
    links.open("a", Transfer(3.0, (("near", 2.0),)), 0.0)
    assert links.span("a") == (0.0, 3.0)
    links.open("b", Transfer(4.0, (("near", 2.0),)), 1.0)
    # a sends its second half until 3, b then has 1 second left to send; both take a latency more.
    assert [links.span(key) for key in "ab"] == [(0.0, 4.0), (1.0, 6.0)]
    links.open("c", Transfer(2.0, (("far", 1.0),)), 3.0)
    assert [links.span(key) for key in "abc"] == [(0.0, 4.0), (1.0, 6.0), (3.0, 5.0)]


def test_a_latency_passes_while_others_send() -> None:
    """Two that begin a latency apart keep the link busy; of two that begin together both wait at the end."""
    for apart, end in ((0.0, 3.0), (1.0, 3.0)):
        links = SharedLinks()
        links.open("a", Transfer(2.0, (("near", 1.0),)), 0.0)
        links.open("b", Transfer(2.0, (("near", 1.0),)), apart)
        assert links.span("b")[1] == end


def test_what_a_device_loses_does_not_grow_where_links_are_shared() -> None:
    """The same bytes take the same time of its processors, however long they are under way."""
    for others in range(3):
        links: Links = SharedLinks()
        for number in range(1 + others):
            links.open(number, Transfer(2.0, (("near", 1.0),), load=0.5), 0.0)
        active_transfers = links.active_transfers(0.0)
        lost = sum((one.ended - one.begun) * one.load for one in active_transfers)
        assert lost == pytest.approx(0.5 * (1 + others))


def test_nothing_to_send_is_over_at_once() -> None:
    for links in (QueuedLinks(), SharedLinks()):
        links.open("a", Transfer(0.0, ()), 3.0)
        assert links.span("a") == (3.0, 3.0)
        assert links.active_transfers(3.0) == []


@pytest.mark.parametrize("seed", range(20))
def test_shared_ends_are_the_simulator_s(seed: int) -> None:
    rng = np.random.default_rng(seed)
    opened = []
    for at in np.sort(rng.exponential(2.0, 12)):
        seconds = float(rng.exponential(2.0))
        way, latency = WAYS[int(rng.integers(2))], float(rng.exponential(1.0))
        opened.append((float(at), Transfer(seconds + latency, ((way, seconds),))))
    links = SharedLinks()
    for number, (at, transfer) in enumerate(opened):
        links.open(number, transfer, at)
    wanted = simulated(opened)
    for number in range(len(opened)):
        assert links.span(number) == pytest.approx((opened[number][0], wanted[number]))


def simulated(opened: list[tuple[float, Transfer]]) -> dict[int, float]:
    """When each is over that sends on the simulator's ports, and waits for its latency then."""
    circles = {way: Port(way) for way in WAYS}
    events: list[tuple[float, int, int, ports.Transfer]] = []
    for number, (at, transfer) in enumerate(opened):
        uses = {circles[way]: part for way, part in transfer.uses}
        heapq.heappush(events, (at, number, -1, ports.Transfer(number, uses, at, transfer.sending)))
    ends: dict[int, float] = {}
    while events:
        now, number, version, transfer_there = heapq.heappop(events)
        if version == -1:
            changed = ports.begin(transfer_there, now)
        elif version == transfer_there.version:
            ends[number] = now + opened[number][1].seconds - opened[number][1].sending
            changed = ports.finish(transfer_there, now)
        else:
            continue
        for one in changed:
            assert isinstance(one.key, int)
            heapq.heappush(events, (one.end(), one.key, one.version, one))
    return ends
