"""Collectives of groups that span nodes, in two levels: over the memory of each node, and by messages between nodes.

A link between nodes is slower than a node's memory and shared by the node's ranks, so what counts is bytes over it. Of
a group with n members on k nodes, m on each, with operands of B bytes, this many cross:

                      by messages alone    in two levels
    all-gather        n (n-m) B            n (k-1) B       each operand once to each node (``all_gather_rows``)
    broadcast         (n-m) B              (k-1) B         the same
    all-reduce        2 (n-m) B            2 (k-1) B       a fold from node to node (``running_prefix``)
    reduce-scatter    (n-m) B              less than k B   the same
    all-to-all        (n-m) B              the same        in fewer messages (``kinds.all_to_all``)

The bits stay those of ``kinds``: a reduction in group order, though it goes from node to node, is never reassociated.
A permute has nothing to gain, since each of its operands is wanted once. Each kind chooses
(``hierarchical_algorithm``).

An algorithm says how much memory each member shows to its *local members*, those on its node (its *staging*), and gives
the actions of one run (``array_actions``): work of its own, exchanges of messages, and barriers of local members. All
read staging between barriers: the last one of a run ends it, so that the next may write there.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Copy,
    Exchange,
    LocalBarrier,
)
from collectives.communicator.actions.shared_buffers import Buffers, aligned
from collectives.communicator.group import Array
from spmd.lazy_dataclass import dataclass

Staging: TypeAlias = Mapping[int, Array]
"""Staging of each local member, the member itself included, as bytes; by member."""


@dataclass(frozen=True)
class GroupNodes:
    """The members of a group, by index, on each of its nodes; nodes in the order of their first members.

    group (4,5,0,1) on nodes of two ranks   =>   nodes ((0,1), (2,3))
    """

    nodes: tuple[tuple[int, ...], ...]

    @cached_property
    def count(self) -> int:
        return sum(map(len, self.nodes))

    @property
    def is_hierarchical(self) -> bool:
        """Return whether there are two levels: several nodes, and one with several members."""
        return 1 < len(self.nodes) < self.count

    @property
    def is_one_after_the_other(self) -> bool:
        """Return whether group order goes through one node after the other."""
        return tuple(itertools.chain.from_iterable(self.nodes)) == tuple(range(self.count))

    def node_of(self, member: int) -> int:
        return self._node_of[member]

    def local_members(self, member: int) -> tuple[int, ...]:
        """The members on the node of ``member``, itself among them."""
        return self.nodes[self._node_of[member]]

    def index_on_node(self, member: int) -> int:
        """Return the index of ``member`` among the members of its node."""
        return self.local_members(member).index(member)

    @property
    def crossings(self) -> int:
        """Pairs of members, in either order, on different nodes."""
        return self.count**2 - sum(len(node) ** 2 for node in self.nodes)

    @cached_property
    def _node_of(self) -> dict[int, int]:
        return {member: k for k, node in enumerate(self.nodes) for member in node}


ROUND_BYTES = 1 << 16
"""Bytes that a node's link carries in the time of one more round of messages: some 10 us at 50 Gb/s."""


class HierarchicalAlgorithm(ABC):
    """One collective on one group of nodes: the same algorithm for every member."""

    nodes: GroupNodes
    #: Barriers among local members in a run, numbered from 1.
    barriers: int

    @property
    @abstractmethod
    def link_bytes(self) -> int:
        """Bytes of all messages between nodes in one run."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Messages between nodes that follow each other in one run, if chunks were of any size."""

    @property
    def cost(self) -> int:
        """The time of a run, in bytes that a node's link carries meanwhile."""
        return link_cost(self.nodes, self.link_bytes, self.rounds)

    @abstractmethod
    def staging_bytes(self, member: int) -> int:
        """Return the bytes that ``member`` exposes to the members of its node; they begin at a multiple of 64 bytes."""

    @abstractmethod
    def actions(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayAction]:
        """One run of ``member``, any number of times. Reading and writing staging is between barriers."""


def link_cost(nodes: GroupNodes, link_bytes: int, rounds: int) -> int:
    """Return the time of ``rounds`` in which ``link_bytes`` cross, in bytes that a node's link carries meanwhile."""
    return link_bytes // len(nodes.nodes) + rounds * ROUND_BYTES


def cut(size: int, parts: int) -> list[tuple[int, int]]:
    """``size`` things in ``parts`` consecutive ranges, as equal as can be."""
    return list(itertools.pairwise(size * i // parts for i in range(parts + 1)))


def common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    """Return the overlap of two ranges; None if it is empty."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low < high else None


def views_of(memory: Array, like: Sequence[Array], offsets: Sequence[int]) -> list[Array]:
    """Arrays of the shapes and types of ``like`` in ``memory``."""
    return [
        memory[start : start + one.nbytes].view(one.dtype).reshape(one.shape)
        for start, one in zip(offsets, like, strict=True)
    ]


# ---- rows of bytes, one from each of some members, to all members: each row crosses once to each node
#
#     nodes ((0,1), (2,3)):   0 sends its row to 2, 1 to 3, 2 to 0 and 3 to 1; then everyone finds the rows of all four
#                             in the staging of its local members
#
# The rows that come to a node are divided among its members, who hold them in their staging for each other.


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


class RowsAlgorithm(HierarchicalAlgorithm):
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

    def actions(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayAction]:
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
    def finish(self, values: Sequence[Array], result: Array) -> Iterator[ArrayAction]:
        """``values``: one operand of every source."""
