"""Which ranks share a machine's memory, and how many cores they have together."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from collectives.communicator.kinds import Group

ByteExchange: TypeAlias = Callable[[bytes], list[bytes]]
"""What every rank passes, in rank order, on every rank: a communicator's ``all_gather_bytes``."""


@dataclass(frozen=True)
class Node:
    """``ranks`` of one node, ascending; ``cores`` that at least one of them may run on."""

    ranks: Group
    cores: int

    @property
    def is_oversubscribed(self) -> bool:
        """Whether ranks have to take turns on the cores."""
        return len(self.ranks) > self.cores


def default_node_id() -> str:
    """Host name and boot: two containers of one host have two names, a rebooted host is another node."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


def find_node(exchange: ByteExchange, rank: int, node_id: str) -> Node:
    """The node of ``rank``: all ranks that pass the same identity."""
    own = {"node": node_id, "cores": sorted(os.sched_getaffinity(0))}
    everyone = [json.loads(data) for data in exchange(json.dumps(own).encode())]
    ranks = tuple(r for r, other in enumerate(everyone) if other["node"] == node_id)
    return Node(ranks, len({core for r in ranks for core in everyone[r]["cores"]}))
