"""Collectives of groups that span nodes, in two levels: over the memory of each node, and by messages between nodes.

A link between nodes is slower than a node's memory, and the ranks of the node share it, so the bytes that cross links
decide the time. In a group with n members on k nodes, m on each, with operands of B bytes, these bytes cross:

                      by messages alone    in two levels
    all-gather        n (n-m) B            n (k-1) B       each operand crosses once to each node (``Rows``)
    broadcast         (n-m) B              (k-1) B         by the same algorithm
    all-reduce        2 (n-m) B            2 (k-1) B       a prefix passes from node to node (``running_prefix``)
    reduce-scatter    (n-m) B              less than k B   by the same algorithm
    all-to-all        (n-m) B              (n-m) B         in fewer messages (``kinds.all_to_all``)

The bits are those of the definitions in ``kinds``: a reduction that passes from node to node remains in group order and
is never reassociated. A permute gains nothing from two levels, since as a rule each operand has one reader. Each kind
chooses its algorithm (``Collective.hierarchical_algorithm``).

The *local members* of a member are the members on its node, and its *staging* is the memory that it exposes to them. An
algorithm defines the size of the staging and the actions of one run (``array_actions``): local work, exchanges of
messages, and barriers of local members. Members access each other's staging only between barriers. The last barrier
ends a run, so that the next run may write staging.
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
"""Staging of each local member, the member itself included: arrays of bytes, keyed by member."""


@dataclass(frozen=True)
class GroupNodes:
    """The members of a group, by index, on each of its nodes. Nodes are in the order of their first members.

    group (4,5,0,1) on nodes of two ranks   =>   nodes ((0,1), (2,3))
    """

    nodes: tuple[tuple[int, ...], ...]

    @cached_property
    def count(self) -> int:
        """Return the number of members."""
        return sum(map(len, self.nodes))

    @property
    def is_hierarchical(self) -> bool:
        """Return whether there are two levels: several nodes, at least one of which has several members."""
        return 1 < len(self.nodes) < self.count

    @property
    def is_one_after_the_other(self) -> bool:
        """Return whether the members of each node follow each other in group order."""
        return tuple(itertools.chain.from_iterable(self.nodes)) == tuple(range(self.count))

    def node_of(self, member: int) -> int:
        """Return the number of the node of ``member``, which indexes ``nodes``."""
        return self._node_of[member]

    def local_members(self, member: int) -> tuple[int, ...]:
        """Return the members on the node of ``member``, which include ``member``."""
        return self.nodes[self._node_of[member]]

    def index_on_node(self, member: int) -> int:
        """Return the index of ``member`` among the members of its node."""
        return self.local_members(member).index(member)

    @property
    def crossings(self) -> int:
        """Return the number of ordered pairs of members on different nodes."""
        return self.count**2 - sum(len(node) ** 2 for node in self.nodes)

    @cached_property
    def _node_of(self) -> dict[int, int]:
        return {member: k for k, node in enumerate(self.nodes) for member in node}


ROUND_BYTES = 1 << 16
"""Bytes that a node's link carries in the time of one further round of messages (about 10 us at 50 Gb/s)."""


class HierarchicalAlgorithm(ABC):
    """Two-level algorithm of one collective for a group on ``nodes``. It is equal on every member."""

    nodes: GroupNodes
    #: Number of barriers among local members in a run. Barriers are numbered from 1.
    barriers: int

    @property
    @abstractmethod
    def link_bytes(self) -> int:
        """Return the bytes of all messages between nodes in one run."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Return the length of the longest sequence of dependent messages between nodes, with all data in one chunk."""

    @property
    def cost(self) -> int:
        """Return the time of a run, as the number of bytes that the link of a node carries in this time."""
        return link_cost(self.nodes, self.link_bytes, self.rounds)

    @abstractmethod
    def staging_bytes(self, member: int) -> int:
        """Return the bytes that ``member`` exposes to its local members. They begin at a multiple of 64 bytes."""

    @abstractmethod
    def actions(self, member: int, buffers: Buffers, staging: Staging) -> Iterator[ArrayAction]:
        """Yield the actions of ``member`` on its ``buffers`` and the ``staging`` of its local members.

        The sequence may run any number of times. Local barriers separate the writes and the reads of staging.
        """


def link_cost(nodes: GroupNodes, link_bytes: int, rounds: int) -> int:
    """Return the time in which ``rounds`` rounds of messages carry ``link_bytes`` bytes in all between ``nodes``.

    The time is given as the number of bytes that the link of a node carries in it.
    """
    return link_bytes // len(nodes.nodes) + rounds * ROUND_BYTES


def cut(size: int, parts: int) -> list[tuple[int, int]]:
    """Split ``range(size)`` into ``parts`` consecutive ranges whose lengths differ by at most one."""
    return list(itertools.pairwise(size * i // parts for i in range(parts + 1)))


def common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    """Return the intersection of two ranges, each given by its first and its end; None if it is empty."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low < high else None


def views_of(memory: Array, like: Sequence[Array], offsets: Sequence[int]) -> list[Array]:
    """Return views of the bytes ``memory``, with the shapes and types of ``like``, at byte ``offsets``."""
    return [
        memory[start : start + one.nbytes].view(one.dtype).reshape(one.shape)
        for start, one in zip(offsets, like, strict=True)
    ]


# ---- all-gather of rows of bytes, of which each member has one or none: each row crosses once to each node
#
#     nodes ((0,1), (2,3)):   0 sends its row to 2, 1 to 3, 2 to 0 and 3 to 1; then every member finds the rows of all
#                             four in the staging of its local members
#
# The members of a node divide the rows that arrive from other nodes, and hold them in their staging for each other.


@dataclass(frozen=True)
class Rows:
    """All-gather of rows of bytes through staging. Each row crosses once to each node.

    sizes: the bytes of each member's row, 0 for a member without a row.
    """

    nodes: GroupNodes
    sizes: tuple[int, ...]

    def staging_bytes(self, member: int) -> int:
        """Return the bytes of the rows that ``member`` holds, its own row included."""
        return sum(aligned(self.sizes[source]) for source in self._stored_offsets[member])

    @property
    def link_bytes(self) -> int:
        """Return the bytes that cross links: each row crosses once to each other node."""
        return sum(self.sizes) * (len(self.nodes.nodes) - 1)

    def own(self, member: int, staging: Staging) -> Array:
        """Return the array in which ``member`` exposes its row."""
        return self.row(member, member, staging)

    def row(self, source: int, member: int, staging: Staging) -> Array:
        """Return the row of ``source`` for ``member``, in the staging of the local member that holds it."""
        holder = self._holder(source, self.nodes.node_of(member))
        start = self._stored_offsets[holder].get(source, 0)  # an empty row has no offset
        return staging[holder][start : start + self.sizes[source]]

    def crossing(self, member: int, staging: Staging) -> Exchange:
        """Return the exchange of ``member`` with other nodes.

        It sends the member's row to one member of every other node, and receives the rows that the member holds for its
        local members.
        """
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
        """Return for each member the offsets in its staging of the rows that it holds, by the source of each row."""
        stored: list[dict[int, int]] = [{} for _ in self.sizes]
        ends = [0] * len(self.sizes)
        for source, node in itertools.product(range(len(self.sizes)), range(len(self.nodes.nodes))):
            if self.sizes[source]:
                holder = self._holder(source, node)
                stored[holder][source] = ends[holder]
                ends[holder] += aligned(self.sizes[source])
        return stored


class RowsAlgorithm(HierarchicalAlgorithm):
    """Algorithm in which every source packs its operands into a row, and members compute results from all rows."""

    barriers = 2

    def __init__(self, nodes: GroupNodes, sources: Sequence[int], buffers: Buffers) -> None:
        """Create the algorithm for a group of which ``sources`` have operands, with sizes as in ``buffers``."""
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
        """Yield the actions that compute ``result`` from ``values``, its operand from each source."""
