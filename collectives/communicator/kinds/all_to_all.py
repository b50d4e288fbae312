"""all-to-all: each member sends a different part of its operands to each member."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Copy,
    Exchange,
    LocalBarrier,
    PackedMessages,
    concatenate,
    contiguous_parts,
)
from collectives.communicator.actions.device_actions import (
    Block,
    DeviceActionBuilder,
    DeviceBuffers,
    ReceiveCall,
    SendCall,
    copied,
)
from collectives.communicator.actions.shared_actions import (
    CollectiveAction,
    Ends,
    SwapRows,
    copy_rows,
    rows_along,
)
from collectives.communicator.actions.shared_buffers import (
    MEMORY_ALIGNMENT,
    Buffers,
    aligned,
    offsets_of,
)
from collectives.communicator.group import Array
from collectives.communicator.hierarchical.algorithms import (
    GroupNodes,
    HierarchicalAlgorithm,
    Staging,
    views_of,
)
from collectives.communicator.kinds.op import Collective, LinkTraffic, Members
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass

BATCH_BYTES = 1 << 14
"""All-to-alls of at most this many bytes per member are batched, since a message costs more than a copy."""

_SPLIT_BYTES = 1024
"""Minimum bytes of a row of which two members swap one half each; shorter rows are divided by number."""


@dataclass(frozen=True)
class AllToAll(Collective):
    """Member i's j-th part goes to member j, as its i-th part.

        group (0,1), dimension 0:   0: [1,2]   1: [3,4]   =>   0: [1,3]   1: [2,4]

    If ``dimension`` is a number, each operand is split along it, and each result is concatenated along it, or along
    ``concat_dimension`` if that is given. If ``dimension`` is None (HLO's tuple form), the operands themselves are the
    parts, one for each member, and so are the results.
    """

    kind = "all-to-all"
    traffic = LinkTraffic(("hierarchical",), each_to_each=True)
    dimension: int | None
    concat_dimension: int | None = None

    @property
    def joined(self) -> int | None:
        """Return the dimension along which the parts of a result are concatenated; None in the tuple form."""
        return self.dimension if self.concat_dimension is None else self.concat_dimension

    # ---- definition
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        if self.dimension is None:
            for member, result in zip(combined, results, strict=True):
                np.copyto(result, member[index])
            return
        count = len(self.group)
        for k, result in enumerate(results):
            parts = [np.split(member[k], count, axis=self.dimension)[index] for member in combined]
            np.concatenate(parts, axis=self.joined, out=result)

    @classmethod
    def of_attributes(cls, dimension: int | None, reduction: ReductionKind | None) -> AllToAll:
        return cls((), dimension)

    # ---- memory that all members reach
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield the copies of parts. If results are the operands' memory, yield swaps instead.

        Each two members swap their parts for each other: one member swaps the first half of the bytes, the other the
        second.
        """
        keeps_dimension = self.joined == self.dimension
        is_in_place = keeps_dimension and tuple(ends.targets) == tuple(ends.operands[ends.index])
        for i, part in self._parts_for(ends):
            if not is_in_place:
                yield from _copy_part(part)
            elif i != ends.index:
                yield from _swap_half(part, is_first=ends.index < i)

    def overwrites_operands(self, buffers: Buffers) -> bool:
        """Return whether results are the operands' memory and are concatenated along the dimension of the split."""
        return self.joined == self.dimension and buffers.are_in_place

    def _parts_for(self, ends: Ends) -> Iterator[tuple[int, _Part]]:
        """Yield pairs (i, part): for each operand, the part that member i has for member ``ends.index``.

        In the tuple form, part i is operand number ``ends.index`` of member i.
        """
        index, members = ends.index, list(enumerate(ends.operands))
        split, joined = self.dimension, self.joined
        if split is None or joined is None:
            for i, member in members:
                size = ends.buffers.results[i].nbytes
                yield i, _Part(member[index], ends.targets[i], 1, size, size, 1, size, size)
            return
        arrays = zip(ends.buffers.operands, ends.buffers.results, strict=True)
        for k, (operand, result) in enumerate(arrays):
            rows, stride = rows_along(operand, split)
            target_rows, target_stride = rows_along(result, joined)
            row, target_row = stride // len(members), target_stride // len(members)
            for i, member in members:
                source, target = member[k] + index * row, ends.targets[k] + i * target_row
                part = _Part(
                    source, target, rows, row, stride, target_rows, target_row, target_stride
                )
                yield i, part

    # ---- messages
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        packed = PackedMessages(index, len(self.group))
        laying: list[ArrayAction] = []
        if self.dimension is None or self.joined is None:
            laying += packed.receive(operands, results, operands)
        else:
            for operand, result in zip(operands, results, strict=True):
                parts, copies = contiguous_parts(operand, packed.count, self.dimension)
                yield from copies
                destinations = np.split(result, packed.count, axis=self.joined)
                laying += packed.receive(parts, destinations, operands)
        yield from packed.exchange()
        yield from laying

    def hierarchical_algorithm(
        self, nodes: GroupNodes, buffers: Buffers
    ) -> HierarchicalAlgorithm | None:
        """Return an algorithm that sends blocks in batches; None if blocks are large or parts differ in shape."""
        operands = buffers.operands
        if self.dimension is None and len({(one.shape, one.dtype) for one in operands}) > 1:
            return None
        block_bytes = block_bytes_of(operands, nodes.count, self.dimension)
        if block_bytes > BATCH_BYTES:
            return None
        return BatchedAllToAll(nodes, self.dimension, self.joined, block_bytes)

    # ---- NCCL
    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        if self.dimension is None:
            parts = [Block.of_array(operand) for operand in buffers.operands]
            destinations = [Block.of_array(result) for result in buffers.results]
            _exchange(builder, buffers, parts, destinations)
            return
        joined = self.joined
        assert joined is not None
        for operand, result in zip(buffers.operands, buffers.results, strict=True):
            parts = Block.parts(operand, builder.count, self.dimension)
            _exchange(builder, buffers, parts, Block.parts(result, builder.count, joined))


# ---- memory that all members reach
@dataclass(frozen=True, slots=True)
class _Part:
    """Part that one member has for another: ``rows`` rows of ``row`` bytes each, from address ``source`` on.

    The part goes to ``target_rows`` rows of ``target_row`` bytes each, from address ``target`` on. Both sides have the
    same number of bytes, in the same order. Strides are the bytes from the start of one row to the start of the next.
    """

    source: int
    target: int
    rows: int
    row: int
    stride: int
    target_rows: int
    target_row: int
    target_stride: int


def _copy_part(part: _Part) -> Iterator[CollectiveAction]:
    """Yield the copies of a part. Each row on the side with the longer rows holds several rows of the other side."""
    if part.row == part.target_row:
        yield from copy_rows(
            part.source, part.target, part.rows, part.row, part.stride, part.target_stride
        )
    elif part.row < part.target_row:
        inside = part.target_row // part.row
        for k in range(part.target_rows):
            source = part.source + k * inside * part.stride
            target = part.target + k * part.target_stride
            yield from copy_rows(source, target, inside, part.row, part.stride, part.row)
    else:
        inside = part.row // part.target_row if part.target_row else 0
        for k in range(part.rows):
            source = part.source + k * part.stride
            target = part.target + k * inside * part.target_stride
            yield from copy_rows(
                source, target, inside, part.target_row, part.target_row, part.target_stride
            )


def _swap_half(part: _Part, *, is_first: bool) -> Iterator[CollectiveAction]:
    """Yield the swap of half a part between two members: the first half if ``is_first``, else the second half."""
    rows, row_bytes = part.rows, part.row
    if rows == 1 or row_bytes >= _SPLIT_BYTES:
        half = row_bytes // 2 // MEMORY_ALIGNMENT * MEMORY_ALIGNMENT
        start, row_bytes = (0, half) if is_first else (half, row_bytes - half)
    else:
        half = rows // 2
        start, rows = (0, half) if is_first else (half * part.stride, rows - half)
    if rows and row_bytes:
        yield SwapRows(part.target + start, part.source + start, rows, row_bytes, part.stride)


# ---- NCCL
def _exchange(
    builder: DeviceActionBuilder,
    buffers: DeviceBuffers,
    parts: Sequence[Block],
    destinations: Sequence[Block],
) -> None:
    """Add the actions that send ``parts[i]`` to member i and receive ``destinations[i]`` from member i.

    If some result overlaps some operand, each part is first copied to scratch.
    """
    is_over = buffers.are_exchanged_in_place
    for member, (part, destination) in enumerate(zip(parts, destinations, strict=True)):
        if part.nbytes == 0:
            continue
        if member == builder.index:
            fits = part.is_dense or destination.is_dense or part.row_bytes == destination.row_bytes
            aside = is_over or not fits
            source = part.at(builder.packed(part, always=True)) if aside else part
            builder.after += copied(source, destination)
            continue
        builder.calls.append(SendCall(builder.packed(part, always=is_over), part.nbytes, member))
        inbox = (
            destination
            if destination.is_dense
            else destination.at(builder.allocate_scratch(destination.nbytes))
        )
        builder.calls.append(ReceiveCall(inbox.pointer, destination.nbytes, member))
        builder.after += copied(inbox, destination)


# ---- two levels
@dataclass(frozen=True)
class BatchedAllToAll(HierarchicalAlgorithm):
    """All-to-all in two levels: one member of a node sends the blocks of its entire node for a member elsewhere.

        nodes ((0,1), (2,3)):   0 sends to 2 the blocks of 0 and 1 for 2, 1 sends to 3 those of 0 and 1 for 3, and so on

    The batches take fewer messages and one more copy, through the memory of the sender's node. Staging holds a block
    for each member of the group: the parts of all operands for this member.

    dimension: the dimension along which operands are split; None for the tuple form. joined: the dimension along which
    results are concatenated.
    """

    nodes: GroupNodes
    dimension: int | None
    joined: int | None
    block_bytes: int
    barriers = 2

    @property
    def link_bytes(self) -> int:
        return self.nodes.crossings * self.block_bytes

    @property
    def rounds(self) -> int:
        return 1

    def staging_bytes(self, member: int) -> int:
        return self.nodes.count * self.block_bytes

    def actions(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayAction]:
        local_members, count = self.nodes.local_members(member), self.nodes.count
        blocks = {
            local_member: staging[local_member].reshape(count, self.block_bytes)
            for local_member in local_members
        }
        parts = parts_of(buffers.operands, count, self.dimension)
        offsets = offsets_of(parts[0])
        for target, sent in enumerate(parts):
            for part, shown in zip(
                sent, views_of(blocks[member][target], sent, offsets), strict=True
            ):
                yield Copy(part, shown)
        yield LocalBarrier(1)
        batches = {
            target: np.empty((len(local_members), self.block_bytes), np.uint8)
            for target in range(count)
            if target not in local_members and self._sender(target, member) == member
        }
        for target, batch in batches.items():
            for local_member, block in zip(local_members, batch, strict=True):
                yield Copy(blocks[local_member][target], block)
        boxes = {
            node: np.empty((len(node), self.block_bytes), np.uint8)
            for node in self.nodes.nodes
            if node != local_members
        }
        yield Exchange(
            tuple(batches.items()),
            tuple((self._sender(member, node[0]), box) for node, box in boxes.items()),
        )
        came = {local_member: blocks[local_member][member] for local_member in local_members}
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
        yield LocalBarrier(2)

    def _sender(self, target: int, source: int) -> int:
        """Return the member that sends to ``target`` the blocks of all members on the node of ``source``."""
        local_members = self.nodes.local_members(source)
        return local_members[self.nodes.index_on_node(target) % len(local_members)]


def parts_of(operands: Sequence[Array], count: int, dimension: int | None) -> list[list[Array]]:
    """Return for each member of the group its parts of all operands, which are views."""
    if dimension is None:
        return [[operand] for operand in operands]
    split = [np.split(operand, count, axis=dimension) for operand in operands]
    return [list(parts) for parts in zip(*split, strict=True)]


def block_bytes_of(operands: Sequence[Array], count: int, dimension: int | None) -> int:
    """Return the bytes of a block for one member, in which every part begins at a multiple of 64 bytes."""
    if dimension is None:
        return aligned(operands[0].nbytes)
    return sum(aligned(operand.nbytes // count) for operand in operands)
