"""Rows of bytes, one from each of some members, to all members: each row crosses once to each node.

    nodes ((0,1), (2,3)):   0 sends its row to 2, 1 to 3, 2 to 0 and 3 to 1; then everyone finds the rows of all four
                            in the staging of its local members

The rows that come to a node are divided among its members, who hold them in their staging for each other.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from collectives.communicator.hierarchical.groups import (
    GroupNodes,
    HierarchicalPlan,
    Staging,
    views_of,
)
from collectives.communicator.reduction import Array
from collectives.communicator.steps.array_steps import (
    ArrayStep,
    Copy,
    Exchange,
    LocalBarrier,
)
from collectives.communicator.steps.shared_buffers import Buffers, aligned


@dataclass(frozen=True)
class Rows:
    """``sizes``: bytes of each member's row; 0 for who has none. ``start``: where rows begin in staging."""

    nodes: GroupNodes
    sizes: tuple[int, ...]
    start: int = 0

    def staging_bytes(self, member: int) -> int:
        """Return the bytes of the rows that ``member`` holds, counted from ``start``."""
        return sum(aligned(self.sizes[source]) for source in self._stored_offsets[member])

    @property
    def link_bytes(self) -> int:
        """Bytes that cross: each row once to each other node."""
        return sum(self.sizes) * (len(self.nodes.nodes) - 1)

    def own(self, member: int, staging: Staging) -> Array:
        """Return the array in which ``member`` exposes its row."""
        return self.row(member, member, staging)

    def row(self, source: int, member: int, staging: Staging) -> Array:
        """The row of ``source`` as ``member`` finds it."""
        holder = self._holder(source, self.nodes.node_of(member))
        start = self._stored_offsets[holder].get(source, 0)  # an empty row has no offset
        return staging[holder][start : start + self.sizes[source]]

    def crossing(self, member: int, staging: Staging) -> Exchange:
        """Own row to one member of every other node; the rows that ``member`` stores for its local members from
        theirs."""
        own_node = self.nodes.node_of(member)
        others = (k for k in range(len(self.nodes.nodes)) if k != own_node and self.sizes[member])
        stored = (source for source in self._stored_offsets[member] if source != member)
        return Exchange(
            tuple((self._holder(member, node), self.own(member, staging)) for node in others),
            tuple((source, self.row(source, member, staging)) for source in stored),
        )

    def _holder(self, source: int, node: int) -> int:
        """Return the member that holds the row of ``source`` for the members of ``node``."""
        if self.nodes.node_of(source) == node:
            return source
        members = self.nodes.nodes[node]
        return members[self.nodes.index_on_node(source) % len(members)]

    @cached_property
    def _stored_offsets(self) -> list[dict[int, int]]:
        """For each member, the offsets of the rows that it holds, by their source."""
        stored: list[dict[int, int]] = [{} for _ in self.sizes]
        ends = [self.start] * len(self.sizes)
        for source, node in itertools.product(range(len(self.sizes)), range(len(self.nodes.nodes))):
            if self.sizes[source]:
                holder = self._holder(source, node)
                stored[holder][source] = ends[holder]
                ends[holder] += aligned(self.sizes[source])
        return stored


class RowsPlan(HierarchicalPlan):
    """Every source packs its operands in a row; all members make their results of all rows."""

    barriers = 2

    def __init__(self, nodes: GroupNodes, sources: Sequence[int], buffers: Buffers) -> None:
        self.nodes = nodes
        self.sources = tuple(sources)
        sizes = [buffers.packed_bytes if i in self.sources else 0 for i in range(nodes.count)]
        self.rows = Rows(nodes, tuple(sizes))

    @property
    def link_bytes(self) -> int:
        return self.rows.link_bytes

    @property
    def rounds(self) -> int:
        return 1

    def staging_bytes(self, member: int) -> int:
        return self.rows.staging_bytes(member)

    def steps(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayStep]:
        found: dict[int, list[Array]] = {}
        for source in self.sources:
            row = self.rows.row(source, member, staging)
            found[source] = views_of(row, buffers.operands, buffers.operand_offsets)
        if member in found:
            for operand, shown in zip(buffers.operands, found[member], strict=True):
                yield Copy(operand, shown)
        yield self.rows.crossing(member, staging)
        yield LocalBarrier(1)
        for k, result in enumerate(buffers.results):
            yield from self.finish([found[source][k] for source in self.sources], result)
        yield LocalBarrier(2)

    @abstractmethod
    def finish(self, values: Sequence[Array], result: Array) -> Iterator[ArrayStep]:
        """``values``: one operand of every source."""
