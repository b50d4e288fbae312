"""Nodes: ranks that share a machine's memory, their cores, and the nodes of the other ranks."""

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
"""What every rank passes, in rank order, on every rank: a communicator's ``all_gather_bytes``."""


@dataclass(frozen=True)
class Node:
    """The ranks of one node, ascending, and the number of cores that at least one of them may run on.

    own_cores: an equal share of the cores for this rank, of which no other rank has a part. It is empty if there are
    fewer cores than ranks, and if the launcher has bound a rank to some of the cores.
    """

    ranks: Group
    cores: int
    own_cores: tuple[int, ...] = ()

    @property
    def is_oversubscribed(self) -> bool:
        """Return whether ranks have to take turns on the cores."""
        return len(self.ranks) > self.cores


def default_node_id() -> str:
    """Host name and boot: two containers of one host have two names, a rebooted host is another node."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


@dataclass(frozen=True)
class Nodes:
    """All nodes of a world. ``own``: that of this rank; ``number_of``: the node of each rank, as its first rank.

    cores_of_each: that every rank has for itself, at least 1; ranks that may run on the same cores have equal parts.
    """

    own: Node
    number_of: Group
    cores_of_each: int = 1

    @property
    def count(self) -> int:
        return len(set(self.number_of))

    @property
    def devices_of_each(self) -> int | None:
        """The most consecutive ranks of which all blocks, from rank 0 on, lie on one node each; None on one node."""
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
        """Return the nodes of the members of ``group``."""
        members: dict[int, list[int]] = {}
        for index, rank in enumerate(group):
            members.setdefault(self.number_of[rank], []).append(index)
        return GroupNodes(tuple(map(tuple, members.values())))


def find_nodes(exchange: ByteExchange, rank: int, node_id: str) -> Nodes:
    """Ranks that pass the same identity are on one node; ``rank`` is this one."""
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
    """Part ``index`` of ``count`` equal ones; empty where there are too few."""
    first, end = (len(cores) * i // count for i in (index, index + 1))
    return tuple(cores[first:end]) if count <= len(cores) else ()
