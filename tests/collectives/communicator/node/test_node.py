"""Tests of which ranks share a node, and whether they have a core each."""

from __future__ import annotations

import os
import threading

import pytest
from loopback_ranks import run_ranks

from collectives.communicator.loopback.communicator import LoopbackCommunicator
from collectives.communicator.node.node import Node, Nodes, default_node_id, find_nodes


def test_ranks_with_one_identity_are_one_node() -> None:
    def program(comm: LoopbackCommunicator) -> Nodes:
        return find_nodes(comm.all_gather_bytes, comm.rank, "ab"[comm.rank % 2])

    nodes = run_ranks(5, program)
    assert [one.own.ranks for one in nodes] == [(0, 2, 4), (1, 3)] * 2 + [(0, 2, 4)]
    assert {one.number_of for one in nodes} == {(0, 1, 0, 1, 0)}
    # Members by their place in the group; nodes as they come.
    assert nodes[0].of_group((3, 4, 1)).nodes == ((0, 2), (1,))


def test_cores_are_those_of_all_ranks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that a launcher binds to cores of their own have one each; ranks bound to the same one take turns."""

    def program(comm: LoopbackCommunicator) -> Node:
        return find_nodes(comm.all_gather_bytes, comm.rank, "here").own

    bound = iter([{0}, {1}, {1}, {0}, {0}])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: next(bound))
    three = run_ranks(3, program)
    assert {(node.ranks, node.cores, node.is_oversubscribed) for node in three} == {
        ((0, 1, 2), 2, True)
    }
    two = run_ranks(2, program)
    assert {(node.cores, node.is_oversubscribed) for node in two} == {(1, True)}
    assert not Node((0, 1), cores=2).is_oversubscribed


@pytest.mark.parametrize(
    ("may_use", "each"),
    [
        ([{0, 1}, {2, 3}], 2),
        ([{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}], 2),
        ([{0, 1, 2, 3}, {3}], 1),
        ([{0}, {0}, {1, 2, 3}], 1),
        ([{0, 1, 2}], 3),
    ],
)
def test_cores_of_each_are_the_least_that_a_rank_has_for_itself(
    may_use: list[set[int]], each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = iter(may_use)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: next(bound))

    def program(comm: LoopbackCommunicator) -> int:
        return find_nodes(comm.all_gather_bytes, comm.rank, "here").cores_of_each

    assert set(run_ranks(len(may_use), program)) == {each}


def test_ranks_of_different_nodes_do_not_share_cores() -> None:
    def program(comm: LoopbackCommunicator) -> int:
        return find_nodes(comm.all_gather_bytes, comm.rank, str(comm.rank)).cores_of_each

    assert set(run_ranks(3, program)) == {len(os.sched_getaffinity(0))}


@pytest.mark.parametrize(
    ("of_ranks", "shares"),
    [
        ([{4, 5, 6, 7, 9}] * 2, [(4, 5), (6, 7, 9)]),
        ([{0, 1}] * 3, [()] * 3),  # too few for all
        ([{0}, {1}], [()] * 2),  # the launcher has bound them
        ([{0, 1, 2, 3}, {1}], [()] * 2),
    ],
)
def test_ranks_that_may_run_anywhere_have_equal_shares_of_the_cores(
    of_ranks: list[set[int]], shares: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = threading.local()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed.cores)

    def program(comm: LoopbackCommunicator) -> Node:
        allowed.cores = of_ranks[comm.rank]
        return find_nodes(comm.all_gather_bytes, comm.rank, "here").own

    nodes = run_ranks(len(of_ranks), program)
    assert [node.own_cores for node in nodes] == shares


def test_an_identity_lasts_and_names_the_host() -> None:
    assert default_node_id() == default_node_id()
    assert os.uname().nodename in default_node_id()


@pytest.mark.parametrize(
    ("nodes", "devices"),
    [
        ("aaaa", None),
        ("aabb", 2),
        ("abab", 1),
        ("aaab", 1),
        ("aabbbb", 2),
        ("aaabbbccc", 3),
        ("aabaab", 1),
        ("aaaabb", 2),
    ],
)
def test_blocks_of_ranks_that_lie_on_one_node(nodes: str, devices: int | None) -> None:
    number_of = tuple(nodes.index(name) for name in nodes)
    assert Nodes(Node((0,), 1), number_of).devices_of_each == devices
