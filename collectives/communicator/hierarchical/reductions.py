"""All-reduce of groups that span nodes: by a prefix that goes from node to node (``running_prefix``), or spread."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collectives.communicator.hierarchical.all_gather_rows import Rows
from collectives.communicator.hierarchical.groups import (
    GroupNodes,
    HierarchicalPlan,
    Staging,
    cut,
    views_of,
)
from collectives.communicator.hierarchical.running_prefix import ChainReduction, FoldRun, Vector
from collectives.communicator.reduction import Array
from collectives.communicator.steps.array_steps import (
    ArrayStep,
    Copy,
    Exchange,
    Meeting,
    Message,
    concatenate,
    separate,
)
from collectives.communicator.steps.packed_messages import PackedMessages
from collectives.communicator.steps.shared_buffers import Buffers, aligned, offsets_of
from spmd.device import ReductionKind


@dataclass(frozen=True)
class Batch:
    """Operands of one type, by their numbers, which travel as one vector."""

    operands: tuple[int, ...]
    vector: Vector


def batches_of(buffers: Buffers) -> tuple[Batch, ...]:
    """The operands of an all-reduce by type."""
    by_type: dict[str, list[int]] = {}
    for k, operand in enumerate(buffers.operands):
        by_type.setdefault(operand.dtype.name, []).append(k)
    return tuple(
        Batch(
            tuple(numbers),
            Vector(
                buffers.operands[numbers[0]].dtype, sum(buffers.operands[k].size for k in numbers)
            ),
        )
        for numbers in by_type.values()
    )


def gather_batch(batch: Batch, arrays: Sequence[Array], vector: Array) -> Iterator[ArrayStep]:
    """The arrays of the batch, one after the other, to ``vector``."""
    yield from concatenate([arrays[k].reshape(-1) for k in batch.operands], 0, vector)


def scatter_batch(batch: Batch, vector: Array, arrays: Sequence[Array]) -> Iterator[ArrayStep]:
    """The same back."""
    yield from separate(vector, 0, [arrays[k].reshape(-1) for k in batch.operands])


@dataclass(frozen=True)
class FoldedAllReduce(HierarchicalPlan):
    """Totals go back from node to node as prefixes have come, each mate's share to the mates that divide it there."""

    nodes: GroupNodes
    batches: tuple[Batch, ...]
    reduction: ReductionKind
    meetings = 3

    @cached_property
    def fold(self) -> ChainReduction:
        return ChainReduction(
            self.nodes, tuple(batch.vector for batch in self.batches), self.reduction
        )

    @property
    def link_bytes(self) -> int:
        """Prefixes go there, totals come back."""
        return self.fold.prefix_bytes + self.fold.last * self.fold.vector_bytes

    @property
    def rounds(self) -> int:
        return 2 * self.fold.last

    def staging_bytes(self, member: int) -> int:
        return self.fold.staging_bytes(member)

    def steps(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayStep]:
        fold = self.fold
        for k, batch in enumerate(self.batches):
            yield from gather_batch(batch, buffers.operands, fold.vector(k, member, staging))
        yield Meeting(1)
        slots = len(fold.chunks) + 2 * fold.last - 1
        yield from FoldRun(fold, member, staging).steps(_totals_go_back, slots)
        yield Meeting(2)
        for k, batch in enumerate(self.batches):
            is_one = len(batch.operands) == 1
            whole = (
                buffers.results[batch.operands[0]].reshape(-1)
                if is_one
                else np.empty(batch.vector.size, batch.vector.dtype)
            )
            for chunk, mate in itertools.product(fold.chunks, self.nodes.mates(member)):
                if chunk.vector == k:
                    low, high = fold.share(chunk, mate)
                    yield Copy(fold.total(chunk, mate, staging), whole[low:high])
            if not is_one:
                yield from scatter_batch(batch, whole, buffers.results)
        yield Meeting(3)


def _totals_go_back(run: FoldRun, slot: int) -> Exchange:
    fold, member = run.fold, run.member
    node = fold.nodes.node_of(member)
    sends: list[Message] = []
    receives: list[Message] = []
    going = run.chunk(slot - 2 * fold.last + node)
    if node > 0 and going is not None:
        sends = fold.toward(going, member, node - 1, run.total(going))
    coming = run.chunk(slot - 2 * fold.last + node + 1)
    if node < fold.last and coming is not None:
        receives = fold.toward(coming, member, node + 1, run.total(coming))
    return Exchange(tuple(sends), tuple(receives))


@dataclass(frozen=True)
class SpreadAllReduce(HierarchicalPlan):
    """For any group order: members reduce a part each, by messages; the totals cross once to each node."""

    nodes: GroupNodes
    batches: tuple[Batch, ...]
    reduction: ReductionKind
    meetings = 2

    @cached_property
    def rows(self) -> Rows:
        sizes = [
            sum(aligned(part.nbytes) for part in self._like(member))
            for member in range(self.nodes.count)
        ]
        return Rows(self.nodes, tuple(sizes))

    @property
    def link_bytes(self) -> int:
        """Each member's part from all members on other nodes, and the rows of its totals."""
        parts = 0
        for member in range(self.nodes.count):
            elsewhere = self.nodes.count - len(self.nodes.mates(member))
            parts += elsewhere * sum(part.nbytes for part in self._like(member))
        return parts + self.rows.link_bytes

    @property
    def rounds(self) -> int:
        return 2

    def staging_bytes(self, member: int) -> int:
        return self.rows.staging_bytes(member)

    def steps(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayStep]:
        found = [self._totals(source, member, staging) for source in range(self.nodes.count)]
        packed = PackedMessages(member, self.nodes.count)
        reductions: list[ArrayStep] = []
        for k, batch in enumerate(self.batches):
            vector = np.empty(batch.vector.size, batch.vector.dtype)
            yield from gather_batch(batch, buffers.operands, vector)
            parts = [vector[low:high] for low, high in cut(vector.size, self.nodes.count)]
            reductions += packed.reduce(self.reduction, parts, found[member][k], ())
        yield from packed.exchange()
        yield from reductions
        yield self.rows.crossing(member, staging)
        yield Meeting(1)
        for k, batch in enumerate(self.batches):
            vector = np.empty(batch.vector.size, batch.vector.dtype)
            yield from concatenate([totals[k] for totals in found], 0, vector)
            yield from scatter_batch(batch, vector, buffers.results)
        yield Meeting(2)

    def _totals(self, source: int, member: int, staging: Staging) -> list[Array]:
        """The totals of ``source``'s part of each batch, as ``member`` finds them."""
        like = self._like(source)
        return views_of(self.rows.row(source, member, staging), like, offsets_of(like))

    def _like(self, member: int) -> list[Array]:
        """Arrays of the sizes and types of ``member``'s parts."""
        ranges = (of_members[member] for of_members in self._ranges)
        return [
            np.broadcast_to(np.zeros((), batch.vector.dtype), high - low)
            for batch, (low, high) in zip(self.batches, ranges, strict=True)
        ]

    @cached_property
    def _ranges(self) -> list[list[tuple[int, int]]]:
        """The parts of each batch, by member."""
        return [cut(batch.vector.size, self.nodes.count) for batch in self.batches]
