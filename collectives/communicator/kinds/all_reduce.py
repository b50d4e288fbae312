"""all-reduce: every member receives the reduction of all operands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from collectives.communicator.hierarchical.all_gather_rows import RowsPlan
from collectives.communicator.hierarchical.groups import GroupNodes, HierarchicalPlan
from collectives.communicator.hierarchical.reductions import (
    FoldedAllReduce,
    SpreadAllReduce,
    batches_of,
)
from collectives.communicator.kinds.op import Members, ReducingCollective
from collectives.communicator.kinds.traffic import LinkTraffic
from collectives.communicator.reduction import Array
from collectives.communicator.steps.array_steps import (
    ArrayStep,
    Copy,
    Reduce,
    concatenate,
    separate,
)
from collectives.communicator.steps.device_builder import (
    Block,
    DeviceBuffers,
    DeviceStepBuilder,
)
from collectives.communicator.steps.device_steps import AllReduceCall
from collectives.communicator.steps.packed_messages import PackedMessages
from collectives.communicator.steps.shared_buffers import Buffers, overlap, starts_at
from collectives.communicator.steps.shared_steps import Step
from collectives.communicator.steps.shared_transfers import Ends, reduce_rows, share_of
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType

ONE_SHOT_BYTES = 8192
"""Up to this many gathered bytes an all-reduce takes one exchange instead of two: latency outweighs bandwidth."""


@dataclass(frozen=True)
class AllReduce(ReducingCollective):
    """Every member receives the reduction of all members' operands.

    group (0,1), sum:   0: [1,2]   1: [10,20]   =>   both [11,22]
    """

    kind = "all-reduce"
    traffic = LinkTraffic(("ring", "tree", "hierarchical"), rounds=2, sends_whole=True)
    same_results = True

    # ---- definition
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        for total, result in zip(combined[0], results, strict=True):
            np.copyto(result, total)

    @classmethod
    def of_attributes(cls, dimension: int | None, reduction: ReductionKind | None) -> AllReduce:
        assert reduction is not None, "it has a reducer"
        return cls((), reduction)

    # ---- facts
    def may_share_results(self, operands: Sequence[PrimitiveType]) -> bool:
        """Reductions of complex numbers that are no sums go by messages, through memory of each member."""
        return self.reduction is ReductionKind.SUM or not any(one.is_complex for one in operands)

    # ---- memory that all members reach
    def shared_transfer(self, ends: Ends) -> Iterator[Step]:
        """In place each member reduces one part of the elements, once, and writes it to everyone's result: identical
        bits, and 1/n of the work. Otherwise it reduces all of them for itself."""
        for k, operand in enumerate(ends.buffers.operands):
            targets, first, end = [ends.targets[k]], 0, operand.size
            if ends.results:
                targets += [own[k] for own in ends.results]
                count = len(ends.results)
                first, end = share_of(operand.size, operand.itemsize, ends.index, count)
            before = first * operand.itemsize
            yield from reduce_rows(
                self.reduction,
                operand,
                [member[k] + before for member in ends.places],
                [target + before for target in dict.fromkeys(targets)],
                rows=1,
                row_elements=end - first,
            )

    def can_run_in_place(self, buffers: Buffers) -> bool:
        """A result is its own operand or no operand."""
        return not any(
            overlap(operand, result) and not (i == k and starts_at(operand) == starts_at(result))
            for i, operand in enumerate(buffers.operands)
            for k, result in enumerate(buffers.results)
        )

    def overwrites_operands(self, buffers: Buffers) -> bool:
        """No other member reads the elements that a member reduces."""
        return len(self.group) > 1

    # ---- messages
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayStep]:
        """Operands of one type travel as one vector: in one exchange if all are small, else in two.

        An element is reduced by one member, in group order, and then handed to all: 2 (n-1)/n of the operand's bytes
        are sent, the least possible. Small operands are gathered and reduced by everyone.
        """
        count = len(self.group)
        vectors, packing, unpacking = _vectors(operands, results)
        yield from packing
        gathering = PackedMessages(index, count)
        handing = PackedMessages(index, count)
        reductions: list[ArrayStep] = []
        for vector, total in vectors:
            if vector.nbytes * count <= ONE_SHOT_BYTES or count == 1:
                reductions += gathering.reduce(self.reduction, [vector] * count, total, results)
                continue
            bounds = [vector.size * i // count for i in range(count + 1)]
            parts, totals = (
                [one[low:high] for low, high in itertools.pairwise(bounds)]
                for one in (vector, total)
            )
            reductions += gathering.reduce(self.reduction, parts, totals[index], results)
            handing.swap([totals[index]] * count, totals)
        yield from gathering.exchange()
        yield from reductions
        yield from handing.exchange()
        yield from unpacking

    def hierarchical_plan(self, nodes: GroupNodes, buffers: Buffers) -> HierarchicalPlan:
        num_bytes = sum(operand.nbytes for operand in buffers.operands)
        if num_bytes * nodes.count <= ONE_SHOT_BYTES:
            return ReducedRows(nodes, buffers, self.reduction)
        batches = batches_of(buffers)
        spread = SpreadAllReduce(nodes, batches, self.reduction)
        if not nodes.is_one_after_the_other:
            return spread
        folded = FoldedAllReduce(nodes, batches, self.reduction)
        return folded if folded.cost <= spread.cost else spread

    # ---- NCCL
    def add_nccl_calls(
        self, builder: DeviceStepBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
            if operand.size:
                how = self.nccl_reduction(operand.dtype, version)
                aside = buffers.is_lost(k, in_place=operand.pointer == result.pointer)
                sent = builder.packed(Block.whole(operand), always=aside)
                count = operand.size * how.parts
                builder.calls.append(
                    AllReduceCall(sent, result.pointer, count, how.kind, how.operation)
                )


def _vectors(
    operands: Sequence[Array], results: Sequence[Array]
) -> tuple[list[tuple[Array, Array]], list[Copy], list[Copy]]:
    """Return for each type a vector and what it is to become; copies from the operands, and to the results."""
    by_type = sorted(range(len(operands)), key=lambda k: operands[k].dtype.name)
    vectors: list[tuple[Array, Array]] = []
    packing: list[Copy] = []
    unpacking: list[Copy] = []
    for _, batch in itertools.groupby(by_type, key=lambda k: operands[k].dtype.name):
        parts = [(operands[k].reshape(-1), results[k].reshape(-1)) for k in batch]
        if len(parts) == 1:
            vectors += parts
            continue
        vector = np.empty(sum(part.size for part, _ in parts), parts[0][0].dtype)
        total = np.empty_like(vector)
        vectors.append((vector, total))
        packing += concatenate([part for part, _ in parts], 0, vector)
        unpacking += separate(total, 0, [result for _, result in parts])
    return vectors, packing, unpacking


# ---- two levels
class ReducedRows(RowsPlan):
    """An all-reduce of little: every member reduces all operands."""

    def __init__(self, nodes: GroupNodes, buffers: Buffers, reduction: ReductionKind) -> None:
        super().__init__(nodes, range(nodes.count), buffers)
        self._reduction = reduction

    def finish(self, values: Sequence[Array], result: Array) -> Iterator[ArrayStep]:
        yield Reduce(tuple(values), self._reduction, result)
