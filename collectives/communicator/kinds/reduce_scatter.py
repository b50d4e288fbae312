"""reduce-scatter: each member receives its part of the reduction of all operands."""

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
    PackedMessages,
    contiguous_parts,
)
from collectives.communicator.actions.device_actions import (
    Block,
    DeviceActionBuilder,
    DeviceBuffers,
    ReduceScatterCall,
    copied,
)
from collectives.communicator.actions.shared_actions import (
    CollectiveAction,
    Ends,
    reduce_rows,
    rows_along,
)
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.group import Array
from collectives.communicator.hierarchical.algorithms import (
    GroupNodes,
    HierarchicalAlgorithm,
    Staging,
    common,
    link_cost,
)
from collectives.communicator.hierarchical.running_prefix import (
    ChainReduction,
    ChainReductionRun,
    Vector,
)
from collectives.communicator.kinds.op import LinkTraffic, Members, ReducingCollective, T
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ReduceScatter(ReducingCollective):
    """The reduction of all members' operands, split along ``dimension``; the i-th member receives the i-th part.

    group (0,1), sum:   0: [1,2]   1: [10,20]   =>   0: [11]   1: [22]
    """

    kind = "reduce-scatter"
    traffic = LinkTraffic(("ring", "hierarchical"))
    dimension: int

    # ---- definition
    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        for total, result in zip(combined[0], results, strict=True):
            np.copyto(result, np.split(total, len(self.group), axis=self.dimension)[index])

    @classmethod
    def of_attributes(cls, dimension: int | None, reduction: ReductionKind | None) -> ReduceScatter:
        assert reduction is not None, "it has a reducer"
        return cls((), reduction, dimension or 0)

    # ---- facts
    def own_tile(self, operand: T, result: T) -> tuple[T, T, int] | None:
        return result, operand, self.dimension

    # ---- cost
    @classmethod
    def exchanged_bytes(cls, first_operand: float, results: float, members: int) -> float:
        """Return the bytes of one member's operands."""
        return results * members

    # ---- memory that all members reach
    def shared_transfer(self, ends: Ends) -> Iterator[CollectiveAction]:
        for k, operand in enumerate(ends.buffers.operands):
            rows, row = rows_along(operand, self.dimension)
            part = row // len(ends.operands)
            sources = [member[k] + ends.index * part for member in ends.operands]
            elements = part // operand.itemsize
            yield from reduce_rows(
                self.reduction, operand, sources, [ends.targets[k]], rows, elements, row, part
            )

    # ---- messages
    def by_messages(
        self, index: int, operands: Sequence[Array], results: Sequence[Array]
    ) -> Iterator[ArrayAction]:
        """Yield an exchange in which each member receives all operands of its part, and their reduction in order."""
        packed = PackedMessages(index, len(self.group))
        reductions: list[ArrayAction] = []
        for operand, result in zip(operands, results, strict=True):
            parts, copies = contiguous_parts(operand, packed.count, self.dimension)
            yield from copies
            reductions += packed.reduce(self.reduction, parts, result, results)
        yield from packed.exchange()
        yield from reductions

    def hierarchical_algorithm(
        self, nodes: GroupNodes, buffers: Buffers
    ) -> HierarchicalAlgorithm | None:
        """Return the chain reduction if the members of each node follow each other and messages alone cost more."""
        if not nodes.is_one_after_the_other:
            return None
        vectors = tuple(Vector(operand.dtype, operand.size) for operand in buffers.operands)
        folded = FoldedReduceScatter(nodes, vectors, self.dimension, self.reduction)
        by_messages = folded.chain.vector_bytes * nodes.crossings // nodes.count
        return folded if folded.cost < link_cost(nodes, by_messages, rounds=1) else None

    # ---- NCCL
    def add_nccl_calls(
        self, builder: DeviceActionBuilder, buffers: DeviceBuffers, version: int
    ) -> None:
        for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
            if not operand.size:
                continue
            parts = Block.parts(operand, builder.count, self.dimension)
            own = parts[builder.index]
            aside = buffers.is_lost(k, in_place=own.is_dense and result.pointer == own.pointer)
            if parts[0].is_dense and not aside:
                sent = operand.pointer
            else:
                sent = builder.allocate_scratch(operand.nbytes)
                for member, part in enumerate(parts):
                    builder.before += copied(part, part.at(sent + member * result.nbytes))
            how = self.nccl_reduction(operand.dtype, version)
            count = result.size * how.parts
            builder.calls.append(
                ReduceScatterCall(sent, result.pointer, count, how.kind, how.operation)
            )


# ---- two levels
@dataclass(frozen=True)
class FoldedReduceScatter(HierarchicalAlgorithm):
    """Reduce-scatter by a chain reduction (``running_prefix``): the last node sends each member its totals.

    In staging the elements of a vector are ordered by the member that receives them, those for member 0 first.
    """

    nodes: GroupNodes
    vectors: tuple[Vector, ...]
    dimension: int
    reduction: ReductionKind
    barriers = 3

    @cached_property
    def chain(self) -> ChainReduction:
        return ChainReduction(self.nodes, self.vectors, self.reduction)

    @property
    def link_bytes(self) -> int:
        """Return the bytes of the prefixes, and of the totals for members on other nodes than the last."""
        elsewhere = self.nodes.count - len(self.nodes.nodes[-1])
        return self.chain.prefix_bytes + self.chain.vector_bytes * elsewhere // self.nodes.count

    @property
    def rounds(self) -> int:
        return self.chain.last + 1

    def staging_bytes(self, member: int) -> int:
        return self.chain.staging_bytes(member)

    def actions(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayAction]:
        chain = self.chain
        results = [result.reshape(-1) for result in buffers.results]
        for k, operand in enumerate(buffers.operands):
            parts = np.split(operand, self.nodes.count, axis=self.dimension)
            shown = chain.vector(k, member, staging).reshape(self.nodes.count, *parts[0].shape)
            for part, staged in zip(parts, shown, strict=True):
                yield Copy(part, staged)
        yield LocalBarrier(1)

        def totals(run: ChainReductionRun, cycle: int) -> Exchange:
            return self._totals_arrive(run, cycle, results)

        yield from ChainReductionRun(chain, member, staging).actions(
            totals, len(chain.chunks) + chain.last
        )
        yield LocalBarrier(2)
        if self.nodes.node_of(member) == chain.last:
            for chunk, local_member in itertools.product(
                chain.chunks, self.nodes.local_members(member)
            ):
                total, (low, _) = (
                    chain.total(chunk, local_member, staging),
                    chain.share(chunk, local_member),
                )
                both = common(chain.share(chunk, local_member), self._part(chunk.vector, member))
                if both is not None:
                    target = self._of_part(results[chunk.vector], both, chunk.vector, member)
                    yield Copy(total[both[0] - low : both[1] - low], target)
        yield LocalBarrier(3)

    def _totals_arrive(
        self, run: ChainReductionRun, cycle: int, results: Sequence[Array]
    ) -> Exchange:
        """Return the messages of ``cycle`` that carry totals from the last node to members on other nodes."""
        chain, member = self.chain, run.member
        chunk = run.chunk(cycle - chain.last)
        if chunk is None:
            return Exchange()
        k = chunk.vector
        if self.nodes.node_of(member) != chain.last:
            shares = {one: chain.share(chunk, one) for one in self.nodes.nodes[chain.last]}
            wanted = self._part(k, member)
            found = {one: common(share, wanted) for one, share in shares.items()}
            return Exchange(
                receives=tuple(
                    (one, self._of_part(results[k], both, k, member))
                    for one, both in found.items()
                    if both is not None
                )
            )
        share = chain.share(chunk, member)
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
        """Return the range of elements of vector ``k`` that ``member`` receives."""
        size = self.vectors[k].size // self.nodes.count
        return member * size, (member + 1) * size

    def _of_part(self, result: Array, elements: tuple[int, int], k: int, member: int) -> Array:
        """Return the view of ``elements`` of vector ``k`` in the flat ``result`` of ``member``."""
        first, _ = self._part(k, member)
        return result[elements[0] - first : elements[1] - first]
