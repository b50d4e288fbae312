"""An all-to-all in few messages: whoever wants blocks from the members of a node gets them from one of these.

    nodes ((0,1), (2,3)):   0 sends to 2 what 0 and 1 have for it, 1 to 3 what 0 and 1 have for that, and so on

It costs a copy through the memory of the sender's node, which is why ``hierarchical_plans`` does so for small blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from collectives.communicator.hierarchical.groups import (
    GroupNodes,
    HierarchicalPlan,
    Staging,
    views_of,
)
from collectives.communicator.messages.array_steps import (
    ArrayStep,
    Copy,
    Exchange,
    Meeting,
    concatenate,
)
from collectives.communicator.node.shared_buffers import Buffers, aligned, offsets_of
from collectives.communicator.reduction import Array


@dataclass(frozen=True)
class BatchedAllToAll(HierarchicalPlan):
    """Staging holds a block for each member of the group: the parts of all operands that go there.

    ``dimension``: that of the all-to-all; None for the form whose operands are the parts. ``joined``: that along which
    results are put together.
    """

    nodes: GroupNodes
    dimension: int | None
    joined: int | None
    block_bytes: int
    meetings = 2

    def staging_bytes(self, member: int) -> int:
        return self.nodes.count * self.block_bytes

    def steps(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayStep]:
        mates, count = self.nodes.mates(member), self.nodes.count
        blocks = {mate: staging[mate].reshape(count, self.block_bytes) for mate in mates}
        parts = parts_of(buffers.operands, count, self.dimension)
        offsets = offsets_of(parts[0])
        for target, sent in enumerate(parts):
            for part, shown in zip(
                sent, views_of(blocks[member][target], sent, offsets), strict=True
            ):
                yield Copy(part, shown)
        yield Meeting(1)
        batches = {
            target: np.empty((len(mates), self.block_bytes), np.uint8)
            for target in range(count)
            if target not in mates and self._sender(target, member) == member
        }
        for target, batch in batches.items():
            for mate, block in zip(mates, batch, strict=True):
                yield Copy(blocks[mate][target], block)
        boxes = {
            node: np.empty((len(node), self.block_bytes), np.uint8)
            for node in self.nodes.nodes
            if node != mates
        }
        yield Exchange(
            tuple(batches.items()),
            tuple((self._sender(member, node[0]), box) for node, box in boxes.items()),
        )
        came = {mate: blocks[mate][member] for mate in mates}
        for node, box in boxes.items():
            came |= dict(zip(node, box, strict=True))
        received = [views_of(came[source], parts[0], offsets) for source in range(count)]
        if self.joined is None:
            for source, result in enumerate(buffers.results):
                yield Copy(received[source][0], result)
        else:
            for k, result in enumerate(buffers.results):
                values = [blocks_of[k] for blocks_of in received]
                yield from concatenate(values, self.joined, result)
        yield Meeting(2)

    def _sender(self, target: int, source: int) -> int:
        """Return the member that sends to ``target`` the blocks of all members on the node of ``source``."""
        mates = self.nodes.mates(source)
        return mates[self.nodes.place_of(target) % len(mates)]


def parts_of(operands: Sequence[Array], count: int, dimension: int | None) -> list[list[Array]]:
    """By member of the group, what goes to it: views of the operands."""
    if dimension is None:
        return [[operand] for operand in operands]
    split = [np.split(operand, count, axis=dimension) for operand in operands]
    return [list(parts) for parts in zip(*split, strict=True)]


def block_bytes_of(operands: Sequence[Array], count: int, dimension: int | None) -> int:
    """Bytes of one member's block, every part at a multiple of 64."""
    if dimension is None:
        return aligned(operands[0].nbytes)
    return sum(aligned(operand.nbytes // count) for operand in operands)
