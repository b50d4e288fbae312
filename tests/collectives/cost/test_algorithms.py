"""Times of collectives in closed form, their order by size, and which algorithm wins where."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_kinds import ALL_KINDS
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from collectives.cost.algorithms import NOTHING, quickest
from collectives.cost.estimator import CollectiveTime
from collectives.cost.placement import Pattern, place_groups, place_pairs
from spmd.device_groups import DeviceGroups
from spmd.machine.description import MachineDescription
from spmd.machine.exchange import Exchange
from spmd.machine.named import machine_named

NEAR = Exchange("near", 8, 4e11, 2e-6)
FAR = Exchange("far", 1024, 5e10, 4e-6)
MACHINE = replace(machine_named("dgx-h100"), exchanges=(NEAR, FAR))
ONE_PORT = replace(MACHINE, exchanges=(NEAR, replace(FAR, ports=1)))
MIB = float(1 << 20)
GIB = float(1 << 30)


def pattern(groups: list[list[int]], machine: MachineDescription = MACHINE) -> Pattern:
    (only,) = place_groups(DeviceGroups.of(groups), machine)
    return only


NODE = pattern([list(range(8))])
NODES = pattern([list(range(128))])
RAILS = pattern([[rail + 8 * node for node in range(16)] for rail in range(8)])
LONE_RAIL = pattern([[8 * node for node in range(16)]])


def sent(time: CollectiveTime) -> dict[str, float]:
    return {link.exchange: link.sent for link in time.links}


def test_a_ring_in_a_node() -> None:
    """2(n-1)/n of the bytes, and as many steps."""
    time = quickest(AllReduce.traffic, NODE, GIB)
    assert time.algorithm == "ring"
    assert sent(time) == {"near": pytest.approx(2 * 7 / 8 * GIB)}
    assert time.seconds == pytest.approx(2 * 7 / 8 * GIB / 4e11 + 14 * 2e-6)
    assert time.links[0].seconds == pytest.approx(2 * 7 / 8 * GIB / 4e11)


@pytest.mark.parametrize("kind", [AllGather, ReduceScatter, AllToAll])
def test_each_sends_its_pieces_in_a_node(kind: type[Collective]) -> None:
    time = quickest(kind.traffic, NODE, GIB)
    assert time.algorithm == "one-shot"
    assert time.seconds == pytest.approx(7 / 8 * GIB / 4e11 + 2e-6)


def test_small_all_reduces_take_few_steps() -> None:
    small, larger = (quickest(AllReduce.traffic, NODE, size) for size in (1024.0, 256 * 1024.0))
    assert small.algorithm == "one-shot"
    assert small.seconds == pytest.approx(7 * 1024 / 4e11 + 2e-6)
    assert larger.algorithm == "one-shot"
    over_nodes = quickest(AllReduce.traffic, NODES, 1024.0)
    assert over_nodes.algorithm == "tree"
    assert over_nodes.seconds == pytest.approx(2 * 3 * 2e-6 + 2 * 4 * 4e-6, rel=1e-2)


def test_rails_carry_a_piece_each() -> None:
    """8 devices of a node send an eighth each over their own ports, while the node's own ring goes on."""
    time = quickest(AllReduce.traffic, NODES, GIB)
    assert time.algorithm == "hierarchical"
    assert sent(time) == {
        "near": pytest.approx(2 * 7 / 8 * GIB),
        "far": pytest.approx(2 * 15 / 16 * GIB / 8),
    }
    busiest = max(2 * 7 / 8 * GIB / 4e11, 2 * 15 / 16 * GIB / 8 / 5e10)
    assert time.seconds == pytest.approx(busiest + 14 * 2e-6 + 30 * 4e-6)


@pytest.mark.parametrize("kind", [AllReduce, AllGather, ReduceScatter])
def test_over_nodes_hierarchical_beats_one_flat_ring(kind: type[Collective]) -> None:
    """A flat ring leaves each node over one port, with all of the bytes."""
    time = quickest(kind.traffic, NODES, GIB)
    rounds = 2 if kind is AllReduce else 1
    assert time.algorithm == "hierarchical"
    assert time.seconds < rounds * 127 / 128 * GIB / 5e10 / 7


def test_groups_with_one_member_a_node_share_its_ports_or_not() -> None:
    """Eight rails over eight ports take what one takes; over one port, eight times as long."""
    alone = quickest(AllReduce.traffic, LONE_RAIL, GIB)
    together = quickest(AllReduce.traffic, RAILS, GIB)
    assert together == alone
    assert alone.seconds == pytest.approx(2 * 15 / 16 * GIB / 5e10 + 30 * 4e-6)
    groups = [[rail + 8 * node for node in range(16)] for rail in range(8)]
    shared = quickest(AllReduce.traffic, pattern(groups, ONE_PORT), GIB)
    assert shared.links[0].seconds == pytest.approx(8 * alone.links[0].seconds)


def test_one_port_a_node_carries_all_rails() -> None:
    nodes = pattern([list(range(128))], ONE_PORT)
    time = quickest(AllReduce.traffic, nodes, GIB)
    far = {link.exchange: link.seconds for link in time.links}["far"]
    assert far == pytest.approx(2 * 15 / 16 * GIB / 5e10)


def test_all_to_all_over_nodes() -> None:
    """Sent straight, an eighth of a node's bytes stay in it; few messages where they are gathered by rail first."""
    straight = quickest(AllToAll.traffic, NODES, GIB)
    assert sent(straight)["far"] == pytest.approx(120 / 128 * GIB)
    few = quickest(AllToAll.traffic, NODES, 128.0)
    assert few.algorithm == "hierarchical"
    assert few.seconds == pytest.approx(7 * 2e-6 + 15 * 4e-6, rel=1e-3)


def test_a_broadcast() -> None:
    time = quickest(CollectiveBroadcast.traffic, NODE, GIB)
    assert time.seconds == pytest.approx(GIB / 4e11 + 3 * 2e-6)
    over_nodes = quickest(CollectiveBroadcast.traffic, NODES, GIB)
    assert over_nodes.algorithm == "hierarchical"
    assert over_nodes.seconds < GIB / 5e10 / 3


def test_a_permute_waits_for_its_busiest_pair() -> None:
    near, far = place_pairs(np.array([(i, (i + 1) % 16) for i in range(16)]), ONE_PORT)
    assert quickest(CollectivePermute.traffic, near, GIB).seconds == pytest.approx(
        GIB / 4e11 + 2e-6
    )
    assert quickest(CollectivePermute.traffic, far, GIB).seconds == pytest.approx(GIB / 5e10 + 4e-6)
    (crowded,) = place_pairs(np.array([(i, i + 8) for i in range(8)]), ONE_PORT)
    assert quickest(CollectivePermute.traffic, crowded, GIB).seconds == pytest.approx(
        8 * GIB / 5e10 + 4e-6
    )


def test_nothing_moves_among_one_or_of_nothing() -> None:
    alone = place_groups(DeviceGroups.of([[3]]), MACHINE)[0]
    assert quickest(AllReduce.traffic, alone, GIB) is NOTHING
    assert quickest(AllGather.traffic, NODE, 0.0) is NOTHING


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_more_bytes_and_slower_links_never_take_less(kind: type[Collective]) -> None:
    uneven = next(
        one
        for one in place_groups(DeviceGroups.of([[0, 1, 2, 8], [16, 24]]), MACHINE)
        if one.size > 2
    )
    for one in (NODE, NODES, RAILS, uneven):
        times = [quickest(kind.traffic, one, 2.0**power).seconds for power in range(40)]
        assert times == sorted(times)
        assert all(0 < time < float("inf") for time in times)
    slow = MACHINE.with_links(0.25)
    at_a_quarter = quickest(kind.traffic, pattern([list(range(128))], slow), GIB).seconds
    assert at_a_quarter > 3.9 * quickest(kind.traffic, NODES, GIB).seconds


def test_a_group_larger_by_a_node_takes_longer() -> None:
    times = [
        quickest(AllReduce.traffic, pattern([list(range(8 * nodes))]), MIB).seconds
        for nodes in range(1, 9)
    ]
    assert times == sorted(times)
