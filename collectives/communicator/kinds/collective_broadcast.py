"""collective-broadcast: every member receives the operands of the first member."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from collectives.communicator.actions.array_actions import ArrayAction, Copy, PackedMessages
from collectives.communicator.actions.device_actions import (
    Block,
    BroadcastCall,
    DeviceActionBuilder,
    DeviceBuffers,
)
from collectives.communicator.actions.shared_actions import CollectiveAction, Ends, copy_rows
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.group import Array
from collectives.communicator.hierarchical.algorithms import (
    GroupNodes,
    HierarchicalAlgorithm,
    RowsAlgorithm,
)
from collectives.communicator.kinds.op import Collective, LinkTraffic, Members
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CollectiveBroadcast(Collective):
    """Every member receives the operands of the group's first rank.

    group (0,1):   0: [1,2]   1: [3,4]   =>   both [1,2]
    """

    kind = "collective-broadcast"
    traffic = LinkTraffic(("ring", "tree", "hierarchical"), sends_full_message=True, from_root=True)
    same_results = True
    rooted = True

    # ---- definition
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        for value, result in zip(combined[0], results, strict=True):
            np.copyto(result, value)

    # ---- facts
    def reads(self, reader: int, source: int) -> bool:
        return source == 0

    # ---- memory that all members reach
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield the copies of the first member's operands. The first of the members that share a result writes it."""
        for k, result in enumerate(ends.buffers.results):
            if ends.index == min(ends.holders_of(k)):
                yield from copy_rows(ends.operands[0][k], ends.targets[k], 1, result.nbytes)

    # ---- messages
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        packed = PackedMessages(index, len(self.group))
        if index == 0:
            packed.sends += itertools.product(packed.others, operands)
        else:
            packed.receives += [(0, result) for result in results]
        yield from packed.exchange()
        if index == 0:
            for operand, result in zip(operands, results, strict=True):
                yield Copy(operand, result)

    def hierarchical_algorithm(
        self, nodes: GroupNodes, buffers: Buffers
    ) -> HierarchicalAlgorithm | None:
        """Return the algorithm; None if messages alone are as good, because no other node has several members."""
        others = nodes.nodes[1:]
        return BroadcastRow(nodes, buffers) if any(len(node) > 1 for node in others) else None

    # ---- NCCL
    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
            if operand.nbytes:
                aside = buffers.is_lost(k, in_place=operand.pointer == result.pointer)
                sent = builder.packed(Block.of_array(operand), always=aside)
                builder.calls.append(BroadcastCall(sent, result.pointer, operand.nbytes))


class BroadcastRow(RowsAlgorithm):
    """Broadcast in two levels: the first member's operands cross once to each node."""

    def __init__(self, nodes: GroupNodes, buffers: Buffers) -> None:
        super().__init__(nodes, (0,), buffers)

    def finish(self, values: Sequence[Array], result: Array) -> Iterator[ArrayAction]:
        yield Copy(values[0], result)
