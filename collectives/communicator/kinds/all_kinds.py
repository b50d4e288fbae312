"""All kinds of collectives, by name. A compiled program imports only the modules of its own kinds."""

from __future__ import annotations

from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.ragged_all_to_all import RaggedAllToAll
from collectives.communicator.kinds.reduce_scatter import ReduceScatter

ALL_KINDS: tuple[type[Collective], ...] = (
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    CollectivePermute,
    CollectiveBroadcast,
    RaggedAllToAll,
)

KIND_NAMED: dict[str, type[Collective]] = {kind.kind: kind for kind in ALL_KINDS}
"""The kinds by the names of their synchronous instructions."""
