"""all-reduce: every member receives the reduction of all operands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Copy,
    Exchange,
    LocalBarrier,
    Message,
    PackedMessages,
    Reduce,
    concatenate,
    separate,
)
from collectives.communicator.actions.device_actions import (
    AllReduceCall,
    Block,
    DeviceActionBuilder,
    DeviceBuffers,
)
from collectives.communicator.actions.shared_actions import (
    CollectiveAction,
    Ends,
    reduce_rows,
    share_of,
)
from collectives.communicator.actions.shared_buffers import (
    Buffers,
    aligned,
    offsets_of,
)
from collectives.communicator.group import Array
from collectives.communicator.hierarchical.algorithms import (
    GroupNodes,
    HierarchicalAlgorithm,
    Rows,
    RowsAlgorithm,
    Staging,
    cut,
    views_of,
)
from collectives.communicator.hierarchical.running_prefix import (
    ChainReduction,
    ChainReductionRun,
    Vector,
)
from collectives.communicator.kinds.op import LinkTraffic, Members, ReducingCollective
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

ONE_SHOT_BYTES = 8192
"""Up to this many gathered bytes an all-reduce takes one exchange instead of two: latency outweighs bandwidth."""


@dataclass(frozen=True)
class AllReduce(ReducingCollective):
    """Every member receives the reduction of all members' operands.

    group (0,1), sum:   0: [1,2]   1: [10,20]   =>   both [11,22]
    """

    kind = "all-reduce"
    traffic = LinkTraffic(("ring", "tree", "hierarchical"), rounds=2, sends_full_message=True)
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
        """Return False if an operand is complex and the reduction is not a sum: native code cannot compute it."""
        return self.reduction is ReductionKind.SUM or not any(one.is_complex for one in operands)

    # ---- cost
    def read_per_result_byte(self, members: int, devices: int) -> float:
        """Return half of the bytes sent: each member writes its share of the results into the others' memory."""
        return self.sent_per_result_byte(members, devices) / 2

    # ---- memory that all members reach
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        """Yield the reduction of all elements into the results of this member.

        In place (``ends.results`` is given), yield that of this member's share of the elements into the results of all
        members: one member reduces each element, so the bits are equal on all members, and each member does 1/n of the
        work.
        """
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
                [member[k] + before for member in ends.operands],
                [target + before for target in dict.fromkeys(targets)],
                rows=1,
                row_elements=end - first,
            )

    def can_run_in_place(self, buffers: Buffers) -> bool:
        """Return whether each result is the memory of its own operand or overlaps no operand."""
        return all(i == k and same_start for i, k, same_start in buffers.overlaps)

    def overwrites_operands(self, buffers: Buffers) -> bool:
        """Return whether there are several members: no other member then reads the elements that a member reduces."""
        return len(self.group) > 1

    # ---- messages
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        """Yield one exchange if all operands are small, else two. Operands of one type travel as one vector.

        If there are two exchanges, the first is a reduce-scatter in group order and the second an all-gather. A member
        then sends 2 (n-1)/n of the operands' bytes, the least possible. Small operands (ONE_SHOT_BYTES) are gathered,
        and every member reduces them.
        """
        count = len(self.group)
        vectors, packing, unpacking = _vectors(operands, results)
        yield from packing
        gathering = PackedMessages(index, count)
        handing = PackedMessages(index, count)
        reductions: list[ArrayAction] = []
        for vector, total in vectors:
            if vector.nbytes * count <= ONE_SHOT_BYTES or count == 1:
                reductions += gathering.reduce(self.reduction, [vector] * count, total, results)
                continue
            parts, totals = (
                [one[low:high] for low, high in cut(vector.size, count)] for one in (vector, total)
            )
            reductions += gathering.reduce(self.reduction, parts, totals[index], results)
            handing.swap([totals[index]] * count, totals)
        yield from gathering.exchange()
        yield from reductions
        yield from handing.exchange()
        yield from unpacking

    def hierarchical_algorithm(self, nodes: GroupNodes, buffers: Buffers) -> HierarchicalAlgorithm:
        """Return ``ReducedRows`` for few bytes, else the cheaper of ``FoldedAllReduce`` and ``SpreadAllReduce``.

        The former needs groups in which the members of each node follow each other.
        """
        num_bytes = sum(operand.nbytes for operand in buffers.operands)
        if num_bytes * nodes.count <= ONE_SHOT_BYTES:
            return ReducedRows(nodes, buffers, self.reduction)
        batches = batches_of(buffers.operands)
        spread = SpreadAllReduce(nodes, batches, self.reduction)
        if not nodes.is_one_after_the_other:
            return spread
        folded = FoldedAllReduce(nodes, batches, self.reduction)
        return folded if folded.cost <= spread.cost else spread

    # ---- NCCL
    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
            if operand.size:
                how = self.nccl_reduction(operand.dtype, version)
                aside = buffers.is_lost(k, in_place=operand.pointer == result.pointer)
                sent = builder.packed(Block.of_array(operand), always=aside)
                count = operand.size * how.parts
                builder.calls.append(
                    AllReduceCall(sent, result.pointer, count, how.kind, how.operation)
                )


def _vectors(
    operands: Sequence[Array], results: Sequence[Array]
) -> tuple[list[tuple[Array, Array]], list[Copy], list[Copy]]:
    """Return a pair (vector, totals) for each type, and the copies from operands to vectors and from totals to results.

    An operand that is the only one of its type is its own vector, and its result holds the totals.
    """
    vectors: list[tuple[Array, Array]] = []
    packing: list[Copy] = []
    unpacking: list[Copy] = []
    for batch in batches_of(operands):
        k, *more = batch.operands
        if not more:
            vectors.append((operands[k].reshape(-1), results[k].reshape(-1)))
            continue
        vector = np.empty(batch.vector.size, batch.vector.dtype)
        total = np.empty_like(vector)
        vectors.append((vector, total))
        packing += gather_batch(batch, operands, vector)
        unpacking += scatter_batch(batch, total, results)
    return vectors, packing, unpacking


# ---- two levels
class ReducedRows(RowsAlgorithm):
    """All-reduce of few bytes in two levels: every member gathers and reduces all operands."""

    def __init__(self, nodes: GroupNodes, buffers: Buffers, reduction: ReductionKind) -> None:
        super().__init__(nodes, range(nodes.count), buffers)
        self._reduction = reduction

    def finish(self, values: Sequence[Array], result: Array) -> Iterator[ArrayAction]:
        yield Reduce(tuple(values), self._reduction, result)


@dataclass(frozen=True)
class Batch:
    """Operands of one type, by their numbers, which are reduced as one vector."""

    operands: tuple[int, ...]
    vector: Vector


def batches_of(operands: Sequence[Array]) -> tuple[Batch, ...]:
    """Return the operands of an all-reduce, grouped by type."""
    by_type: dict[str, list[int]] = {}
    for k, operand in enumerate(operands):
        by_type.setdefault(operand.dtype.name, []).append(k)
    return tuple(
        Batch(
            tuple(numbers),
            Vector(operands[numbers[0]].dtype, sum(operands[k].size for k in numbers)),
        )
        for numbers in by_type.values()
    )


def gather_batch(batch: Batch, arrays: Sequence[Array], vector: Array) -> Iterator[Copy]:
    """Yield the copies of the arrays of ``batch`` to ``vector``, one after the other."""
    yield from concatenate([arrays[k].reshape(-1) for k in batch.operands], 0, vector)


def scatter_batch(batch: Batch, vector: Array, arrays: Sequence[Array]) -> Iterator[Copy]:
    """Yield the copies of ``vector`` back to the arrays of ``batch``."""
    yield from separate(vector, 0, [arrays[k].reshape(-1) for k in batch.operands])


@dataclass(frozen=True)
class FoldedAllReduce(HierarchicalAlgorithm):
    """All-reduce by a chain reduction (``running_prefix``), if the members of each node follow each other.

    The totals return from the last node to the first, node by node. Each member sends its share of them to the members
    of the previous node whose shares overlap it.
    """

    nodes: GroupNodes
    batches: tuple[Batch, ...]
    reduction: ReductionKind
    barriers = 3

    @cached_property
    def chain(self) -> ChainReduction:
        return ChainReduction(
            self.nodes, tuple(batch.vector for batch in self.batches), self.reduction
        )

    @property
    def link_bytes(self) -> int:
        """Return the bytes of the prefixes, which travel to the last node, and of the totals, which return from it."""
        return self.chain.prefix_bytes + self.chain.last * self.chain.vector_bytes

    @property
    def rounds(self) -> int:
        return 2 * self.chain.last

    def staging_bytes(self, member: int) -> int:
        return self.chain.staging_bytes(member)

    def actions(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayAction]:
        chain = self.chain
        for k, batch in enumerate(self.batches):
            yield from gather_batch(batch, buffers.operands, chain.vector(k, member, staging))
        yield LocalBarrier(1)
        cycles = len(chain.chunks) + 2 * chain.last - 1
        yield from ChainReductionRun(chain, member, staging).actions(_totals_go_back, cycles)
        yield LocalBarrier(2)
        for k, batch in enumerate(self.batches):
            is_one = len(batch.operands) == 1
            totals = (
                buffers.results[batch.operands[0]].reshape(-1)
                if is_one
                else np.empty(batch.vector.size, batch.vector.dtype)
            )
            for chunk, local_member in itertools.product(
                chain.chunks, self.nodes.local_members(member)
            ):
                if chunk.vector == k:
                    low, high = chain.share(chunk, local_member)
                    yield Copy(chain.total(chunk, local_member, staging), totals[low:high])
            if not is_one:
                yield from scatter_batch(batch, totals, buffers.results)
        yield LocalBarrier(3)


def _totals_go_back(run: ChainReductionRun, cycle: int) -> Exchange:
    """Return the messages of ``cycle`` that carry totals: to the previous node, and from the next one."""
    chain, member = run.chain, run.member
    node = chain.nodes.node_of(member)
    sends: list[Message] = []
    receives: list[Message] = []
    going = run.chunk(cycle - 2 * chain.last + node)
    if node > 0 and going is not None:
        sends = chain.toward(going, member, node - 1, run.total(going))
    coming = run.chunk(cycle - 2 * chain.last + node + 1)
    if node < chain.last and coming is not None:
        receives = chain.toward(coming, member, node + 1, run.total(coming))
    return Exchange(tuple(sends), tuple(receives))


@dataclass(frozen=True)
class SpreadAllReduce(HierarchicalAlgorithm):
    """All-reduce in two levels for any group order.

    Each member receives one part of the elements from all members by messages, and reduces it. Its totals cross once to
    each node.
    """

    nodes: GroupNodes
    batches: tuple[Batch, ...]
    reduction: ReductionKind
    barriers = 2

    @cached_property
    def rows(self) -> Rows:
        """Return the rows in which members expose the totals of their parts."""
        sizes = [
            sum(aligned(part.nbytes) for part in self._like(member))
            for member in range(self.nodes.count)
        ]
        return Rows(self.nodes, tuple(sizes))

    @property
    def link_bytes(self) -> int:
        """Return the bytes of the parts that members receive from other nodes, and of the rows of totals."""
        parts = 0
        for member in range(self.nodes.count):
            elsewhere = self.nodes.count - len(self.nodes.local_members(member))
            parts += elsewhere * sum(part.nbytes for part in self._like(member))
        return parts + self.rows.link_bytes

    @property
    def rounds(self) -> int:
        return 2

    def staging_bytes(self, member: int) -> int:
        return self.rows.staging_bytes(member)

    def actions(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayAction]:
        found = [self._totals(source, member, staging) for source in range(self.nodes.count)]
        packed = PackedMessages(member, self.nodes.count)
        reductions: list[ArrayAction] = []
        for k, batch in enumerate(self.batches):
            vector = np.empty(batch.vector.size, batch.vector.dtype)
            yield from gather_batch(batch, buffers.operands, vector)
            parts = [vector[low:high] for low, high in cut(vector.size, self.nodes.count)]
            reductions += packed.reduce(self.reduction, parts, found[member][k], ())
        yield from packed.exchange()
        yield from reductions
        yield self.rows.crossing(member, staging)
        yield LocalBarrier(1)
        for k, batch in enumerate(self.batches):
            vector = np.empty(batch.vector.size, batch.vector.dtype)
            yield from concatenate([totals[k] for totals in found], 0, vector)
            yield from scatter_batch(batch, vector, buffers.results)
        yield LocalBarrier(2)

    def _totals(self, source: int, member: int, staging: Staging) -> list[Array]:
        """Return the totals of the parts of ``source``, one of each batch, in the row that ``member`` reads."""
        like = self._like(source)
        return views_of(self.rows.row(source, member, staging), like, offsets_of(like))

    def _like(self, member: int) -> list[Array]:
        """Return arrays with the sizes and types of the parts of ``member``, one of each batch. They take no memory."""
        ranges = (of_members[member] for of_members in self._ranges)
        return [
            np.broadcast_to(np.zeros((), batch.vector.dtype), high - low)
            for batch, (low, high) in zip(self.batches, ranges, strict=True)
        ]

    @cached_property
    def _ranges(self) -> list[list[tuple[int, int]]]:
        """Return for each batch the range of elements that each member reduces."""
        return [cut(batch.vector.size, self.nodes.count) for batch in self.batches]
