"""All-reduce and reduce-scatter of groups that span nodes (see ``hierarchical_fold``)."""

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
    common,
    cut,
    views_of,
)
from collectives.communicator.hierarchical.running_prefix import ChainReduction, FoldRun, Vector
from collectives.communicator.messages.array_steps import (
    ArrayStep,
    Copy,
    Exchange,
    Meeting,
    Message,
    concatenate,
    separate,
)
from collectives.communicator.messages.packed_messages import PackedMessages
from collectives.communicator.node.shared_buffers import Buffers, aligned, offsets_of
from collectives.communicator.reduction import Array
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
class FoldedReduceScatter(HierarchicalPlan):
    """The last node sends totals to whom they are for. Vectors lie in parts: first all that is for member 0."""

    nodes: GroupNodes
    vectors: tuple[Vector, ...]
    dimension: int
    reduction: ReductionKind
    meetings = 3

    @cached_property
    def fold(self) -> ChainReduction:
        return ChainReduction(self.nodes, self.vectors, self.reduction)

    def staging_bytes(self, member: int) -> int:
        return self.fold.staging_bytes(member)

    def steps(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayStep]:
        fold = self.fold
        results = [result.reshape(-1) for result in buffers.results]
        for k, operand in enumerate(buffers.operands):
            parts = np.split(operand, self.nodes.count, axis=self.dimension)
            shown = fold.vector(k, member, staging).reshape(self.nodes.count, *parts[0].shape)
            for part, place in zip(parts, shown, strict=True):
                yield Copy(part, place)
        yield Meeting(1)

        def totals(run: FoldRun, slot: int) -> Exchange:
            return self._totals_arrive(run, slot, results)

        yield from FoldRun(fold, member, staging).steps(totals, len(fold.chunks) + fold.last)
        yield Meeting(2)
        if self.nodes.node_of(member) == fold.last:
            for chunk, mate in itertools.product(fold.chunks, self.nodes.mates(member)):
                total, (low, _) = fold.total(chunk, mate, staging), fold.share(chunk, mate)
                both = common(fold.share(chunk, mate), self._part(chunk.vector, member))
                if both is not None:
                    target = self._of_part(results[chunk.vector], both, chunk.vector, member)
                    yield Copy(total[both[0] - low : both[1] - low], target)
        yield Meeting(3)

    def _totals_arrive(self, run: FoldRun, slot: int, results: Sequence[Array]) -> Exchange:
        fold, member = self.fold, run.member
        chunk = run.chunk(slot - fold.last)
        if chunk is None:
            return Exchange()
        k = chunk.vector
        if self.nodes.node_of(member) != fold.last:
            shares = {one: fold.share(chunk, one) for one in self.nodes.nodes[fold.last]}
            wanted = self._part(k, member)
            found = {one: common(share, wanted) for one, share in shares.items()}
            return Exchange(
                receives=tuple(
                    (one, self._of_part(results[k], both, k, member))
                    for one, both in found.items()
                    if both is not None
                )
            )
        share = fold.share(chunk, member)
        total = run.total(chunk)
        others = (one for node in self.nodes.nodes[:-1] for one in node)
        parts = {one: common(share, self._part(k, one)) for one in others}
        return Exchange(
            sends=tuple(
                (one, total[both[0] - share[0] : both[1] - share[0]])
                for one, both in parts.items()
                if both is not None
            )
        )

    def _part(self, k: int, member: int) -> tuple[int, int]:
        """The elements of vector ``k`` that are for ``member``."""
        size = self.vectors[k].size // self.nodes.count
        return member * size, (member + 1) * size

    def _of_part(self, result: Array, elements: tuple[int, int], k: int, member: int) -> Array:
        first, _ = self._part(k, member)
        return result[elements[0] - first : elements[1] - first]


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

    def staging_bytes(self, member: int) -> int:
        return self.rows.staging_bytes(member)

    def steps(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayStep]:
        found = [self._totals(source, member, staging) for source in range(self.nodes.count)]
        parcels = PackedMessages(member, self.nodes.count)
        reductions: list[ArrayStep] = []
        for k, batch in enumerate(self.batches):
            vector = np.empty(batch.vector.size, batch.vector.dtype)
            yield from gather_batch(batch, buffers.operands, vector)
            parts = [vector[low:high] for low, high in cut(vector.size, self.nodes.count)]
            reductions += parcels.reduce(self.reduction, parts, found[member][k], ())
        yield from parcels.exchange()
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
        ranges = [cut(batch.vector.size, self.nodes.count)[member] for batch in self.batches]
        return [
            np.broadcast_to(np.zeros((), batch.vector.dtype), high - low)
            for batch, (low, high) in zip(self.batches, ranges, strict=True)
        ]
