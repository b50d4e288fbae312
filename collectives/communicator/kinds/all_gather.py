"""all-gather: every member receives the operands of all, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collectives.communicator.actions.array_actions import ArrayAction, PackedMessages, concatenate
from collectives.communicator.actions.device_actions import (
    AllGatherCall,
    Block,
    DeviceActionBuilder,
    DeviceBuffers,
    copied,
)
from collectives.communicator.actions.shared_actions import (
    CollectiveAction,
    Ends,
    copy_rows,
    rows_along,
)
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.group import Array
from collectives.communicator.hierarchical.algorithms import GroupNodes, RowsAlgorithm
from collectives.communicator.kinds.op import Collective, LinkTraffic, Members, T
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class AllGather(Collective):
    """Every member receives all members' operands, concatenated along ``dimension``.

    group (0,1):   0: [1,2]   1: [3,4]   =>   both [1,2,3,4]
    """

    kind = "all-gather"
    traffic = LinkTraffic(("ring", "hierarchical"))
    same_results = True
    dimension: int

    # ---- definition
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        for k, result in enumerate(results):
            np.concatenate([member[k] for member in combined], axis=self.dimension, out=result)

    @classmethod
    def of_attributes(cls, dimension: int | None, reduction: ReductionKind | None) -> AllGather:
        return cls((), dimension or 0)

    # ---- facts
    def own_tile(self, operand: T, result: T) -> tuple[T, T, int] | None:
        return operand, result, self.dimension

    # ---- memory that all members reach
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield the copies of tiles to this member's results.

        Members that share a result divide the copies: each writes its own tile, and some tiles of members that do not
        share it.
        """
        count = len(ends.operands)
        for k, operand in enumerate(ends.buffers.operands):
            rows, row = rows_along(operand, self.dimension)
            holders = ends.holders_of(k)
            for i, member in enumerate(ends.operands):
                writer = i if i in holders else holders[i % len(holders)]
                if writer == ends.index:
                    target = ends.targets[k] + i * row
                    yield from copy_rows(member[k], target, rows, row, row, count * row)

    # ---- messages
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        packed = PackedMessages(index, len(self.group))
        laying: list[ArrayAction] = []
        for operand, result in zip(operands, results, strict=True):
            tiles = np.split(result, packed.count, axis=self.dimension)
            laying += packed.receive([operand] * packed.count, tiles)
        yield from packed.exchange()
        yield from laying

    def hierarchical_algorithm(self, nodes: GroupNodes, buffers: Buffers) -> GatherRows:
        return GatherRows(nodes, buffers, self.dimension)

    # ---- NCCL
    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
            if not operand.size:
                continue
            tiles = Block.parts(result, builder.count, self.dimension)
            own = tiles[builder.index]
            aside = buffers.is_lost(k, in_place=own.is_dense and operand.pointer == own.pointer)
            sent = builder.packed(Block.of_array(operand), always=aside)
            if own.is_dense:
                builder.calls.append(AllGatherCall(sent, result.pointer, operand.nbytes))
                continue
            joined = builder.allocate_scratch(result.nbytes)
            builder.calls.append(AllGatherCall(sent, joined, operand.nbytes))
            for member, tile in enumerate(tiles):
                builder.after += copied(tile.at(joined + member * operand.nbytes), tile)


class GatherRows(RowsAlgorithm):
    """All-gather in two levels: each operand crosses once to each node."""

    def __init__(self, nodes: GroupNodes, buffers: Buffers, dimension: int) -> None:
        super().__init__(nodes, range(nodes.count), buffers)
        self._dimension = dimension

    def finish(self, values: Sequence[Array], result: Array) -> Iterator[ArrayAction]:
        yield from concatenate(values, self._dimension, result)
