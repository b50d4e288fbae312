"""Nodes of a world: the ranks that share memory, and the cores on which they run."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

from collectives.communicator.group import Group
from collectives.communicator.hierarchical.algorithms import GroupNodes
from spmd.lazy_dataclass import dataclass

ByteExchange: TypeAlias = Callable[[bytes], list[bytes]]
"""Function that gathers bytes from all ranks and returns them in rank order (``Communicator.all_gather_bytes``)."""


@dataclass(frozen=True)
class Node:
    """One node: its ranks in ascending order, and the number of cores on which at least one of them may run.

    ``own_cores`` are the cores reserved for this rank, an equal share of the node's cores. The shares of ranks are
    disjoint. ``own_cores`` is empty if there are fewer cores than ranks or if the launcher has bound a rank to a subset
    of the cores.
    """

    ranks: Group
    cores: int
    own_cores: tuple[int, ...] = ()

    @property
    def is_oversubscribed(self) -> bool:
        """Return whether the node has more ranks than cores."""
        return len(self.ranks) > self.cores


def default_node_id() -> str:
    """Return an identifier of this node: the host name and the boot id.

    Two containers of one host have different host names, and a host that was rebooted is a different node.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


@dataclass(frozen=True)
class Nodes:
    """All nodes of a world.

    ``own`` is the node of this rank. ``number_of`` holds, for each rank, the number of its node: the lowest rank on it.
    ``cores_of_each`` is the number of cores that every rank can use alone (>= 1), equal on all ranks: the smallest
    share of any rank, where ranks that may run on the same core have equal shares of it.
    """

    own: Node
    number_of: Group
    cores_of_each: int = 1

    @property
    def count(self) -> int:
        """Return the number of nodes."""
        return len(set(self.number_of))

    @property
    def devices_of_each(self) -> int | None:
        """Return the largest n such that each block of n consecutive ranks lies on one node.

        The blocks begin at the multiples of n, and n divides the number of ranks. Returns None if there is one node.
        """
        if self.count == 1:
            return None
        size = len(self.number_of)
        return next(
            n
            for n in range(size, 0, -1)
            if size % n == 0
            and all(self.number_of[r] == self.number_of[r // n * n] for r in range(size))
        )

    def of_group(self, group: Group) -> GroupNodes:
        """Return the members of ``group``, by index, on each of its nodes."""
        members: dict[int, list[int]] = {}
        for index, rank in enumerate(group):
            members.setdefault(self.number_of[rank], []).append(index)
        return GroupNodes(tuple(map(tuple, members.values())))


def find_nodes(exchange: ByteExchange, rank: int, node_id: str) -> Nodes:
    """Return the nodes of the world. Every rank must call this function; ranks with equal ``node_id`` are on one node.

    ``exchange`` gathers bytes from all ranks, and ``rank`` is the calling rank.
    """
    own_info = {"node": node_id, "cores": sorted(os.sched_getaffinity(0))}
    everyone = [json.loads(data) for data in exchange(json.dumps(own_info).encode())]
    identities = [str(other["node"]) for other in everyone]
    ranks = tuple(r for r, identity in enumerate(identities) if identity == node_id)
    cores = {r: set(everyone[r]["cores"]) for r in ranks}
    all_cores = set[int]().union(*cores.values())
    has_bound_ranks = any(of_rank != all_cores for of_rank in cores.values())
    share = () if has_bound_ranks else _share(sorted(all_cores), ranks.index(rank), len(ranks))
    own = Node(ranks, len(all_cores), share)
    users = Counter((other["node"], core) for other in everyone for core in other["cores"])
    parts = [
        sum(Fraction(1, users[other["node"], core]) for core in other["cores"])
        for other in everyone
    ]
    return Nodes(own, tuple(map(identities.index, identities)), max(1, int(min(parts))))


def _share(cores: Sequence[int], index: int, count: int) -> tuple[int, ...]:
    """Return part ``index`` of ``cores`` divided into ``count`` parts; empty if there are fewer cores than parts."""
    first, end = (len(cores) * i // count for i in (index, index + 1))
    return tuple(cores[first:end]) if count <= len(cores) else ()
