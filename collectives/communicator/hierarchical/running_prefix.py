"""Chain reduction, in group order: nodes reduce one after the other, and one value for each element crosses each link.

    nodes ((0,1), (2,3)), a sum:   ((x0 + x1) + x2) + x3
                                    `-- node 0 --´  `--- node 1 ---´

If the members of each node follow each other in group order, the values of the first node's members come first. This
node reduces them to a *prefix*, from which the next node continues, and so on. The operations are those of
``reduce_in_order``, one by one, in the same types (a prefix of bf16 travels in f32), so the bits are equal. The last
node has the totals.

Local members divide the elements among themselves, so that each sends its share over the link. The elements travel in
chunks: in *cycle* t, node j sends the prefix of chunk t - j to the next node, while it receives the prefix of the
following chunk.

    cycle         0     1     2     3     4        an all-reduce of three chunks on two nodes: totals c' return on the
    node 0 sends  c0    c1    c2                   same way, node by node
    node 1 sends        c0'   c1'   c2'
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from collectives.communicator.actions.array_actions import ArrayAction, Exchange, Message, Reduce
from collectives.communicator.actions.shared_buffers import aligned
from collectives.communicator.group import Array, accumulator_type
from collectives.communicator.hierarchical.algorithms import GroupNodes, Staging, common, cut
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass

CHUNK_BYTES = 1 << 18
"""Bytes of a member's share that travel in one message. Smaller chunks add latency; larger ones leave links idle."""

#: Largest number of chunks of one vector.
MAX_CHUNKS = 32

Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Vector:
    """``size`` elements of one type that are reduced together."""

    dtype: np.dtype[Any]
    size: int

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Chunk:
    """The range ``elements`` of a vector, which is reduced and sent at a time.

    ``vector`` is the number of the vector, ``number`` the position in the order in which chunks travel.
    """

    number: int
    vector: int
    elements: Range


@dataclass(frozen=True)
class ChainReduction:
    """Chain reduction of ``vectors``: the elements that each member reduces, and the messages between nodes.

    The members of each node must follow each other in group order. Staging of a member holds its vectors, each at a
    multiple of 64 bytes, and then the totals of its share of each chunk.
    """

    nodes: GroupNodes
    vectors: tuple[Vector, ...]
    reduction: ReductionKind

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """Return the chunks of all vectors in the order in which they travel.

        Their sizes follow from the node with the fewest members, whose shares are the largest.
        """
        fewest = min(map(len, self.nodes.nodes))
        pieces = [
            (k, piece)
            for k, vector in enumerate(self.vectors)
            for piece in cut(vector.size, _chunks_of(vector, fewest))
            if vector.size
        ]
        return tuple(Chunk(number, k, piece) for number, (k, piece) in enumerate(pieces))

    @property
    def last(self) -> int:
        """Return the number of the last node, which has the totals."""
        return len(self.nodes.nodes) - 1

    def share(self, chunk: Chunk, member: int) -> Range:
        """Return the range of elements of the chunk's vector that ``member`` reduces for its node."""
        low, high = chunk.elements
        first, end = cut(high - low, len(self.nodes.local_members(member)))[
            self.nodes.index_on_node(member)
        ]
        return low + first, low + end

    def prefix_type(self, vector: int, node: int) -> np.dtype[Any]:
        """Return the dtype of the prefix of vector number ``vector`` that leaves ``node``.

        It is the operand's dtype if the prefix holds one operand, else the accumulator dtype.
        """
        dtype = self.vectors[vector].dtype
        return dtype if node == 0 and len(self.nodes.nodes[0]) == 1 else accumulator_type(dtype)

    @property
    def vector_bytes(self) -> int:
        """Return the bytes of all vectors of one member, which are also the bytes of the totals."""
        return sum(vector.nbytes for vector in self.vectors)

    @property
    def prefix_bytes(self) -> int:
        """Return the bytes of all prefixes: each node but the last sends one of every vector to the next node."""
        return sum(
            vector.size * self.prefix_type(k, node).itemsize
            for k, vector in enumerate(self.vectors)
            for node in range(self.last)
        )

    # ---- memory
    def staging_bytes(self, member: int) -> int:
        """Return the bytes of the staging of ``member``."""
        return self._totals_of[member][-1]

    def vector(self, k: int, member: int, staging: Staging) -> Array:
        """Return vector number ``k`` in the staging of ``member``."""
        start = _end_of(self.vectors[:k])
        one = self.vectors[k]
        return staging[member][start : start + one.nbytes].view(one.dtype)

    def total(self, chunk: Chunk, member: int, staging: Staging) -> Array:
        """Return the array in the staging of ``member`` for the totals of the member's share of ``chunk``."""
        start = self._totals_of[member][chunk.number]
        size = self._share_bytes(chunk, member)
        return staging[member][start : start + size].view(self.vectors[chunk.vector].dtype)

    @cached_property
    def _totals_of(self) -> list[list[int]]:
        """Return for each member the offsets of its totals in staging, by chunk, and then the end of the last ones."""
        first = _end_of(self.vectors)
        return [
            [
                first + before
                for before in itertools.accumulate(
                    (aligned(self._share_bytes(chunk, member)) for chunk in self.chunks), initial=0
                )
            ]
            for member in range(self.nodes.count)
        ]

    def _share_bytes(self, chunk: Chunk, member: int) -> int:
        """Return the bytes of the share of ``chunk`` that ``member`` reduces, in the type of the operands."""
        low, high = self.share(chunk, member)
        return (high - low) * self.vectors[chunk.vector].dtype.itemsize

    # ---- messages between nodes
    def toward(self, chunk: Chunk, member: int, node: int, share: Array) -> list[Message]:
        """Return ``share`` in pieces, each with the member of ``node`` whose share of ``chunk`` contains it.

        ``share`` is an array with the elements of ``chunk`` that ``member`` reduces. The pieces are views of it, to be
        sent to these members or received from them.
        """
        low, high = self.share(chunk, member)
        found = []
        for other in self.nodes.nodes[node]:
            both = common((low, high), self.share(chunk, other))
            if both is not None:
                found.append((other, share[both[0] - low : both[1] - low]))
        return found


@dataclass(frozen=True)
class ChainReductionRun:
    """One member's part in a chain reduction, from the vectors in staging to the totals in staging."""

    chain: ChainReduction
    member: int
    staging: Staging

    def actions(
        self, totals: Callable[[ChainReductionRun, int], Exchange], cycles: int
    ) -> Iterator[ArrayAction]:
        """Yield the actions of ``cycles`` cycles.

        ``totals`` returns the messages with totals that this member exchanges in a cycle in addition to prefixes. When
        they are sent in cycle t, the last node has reduced chunk t - last.
        """
        chain, node = self.chain, self.chain.nodes.node_of(self.member)
        for cycle in range(cycles):
            chunk = self.chunk(cycle - node)
            if chunk is not None:
                yield self._reduce(chunk)
            crossing = totals(self, cycle)
            sends, receives = [*crossing.sends], [*crossing.receives]
            if node < chain.last and chunk is not None:
                sends += chain.toward(chunk, self.member, node + 1, self._outbox(chunk))
            coming = self.chunk(cycle - node + 1)
            if node > 0 and coming is not None:
                receives += chain.toward(coming, self.member, node - 1, self._inbox(coming))
            if sends or receives:
                yield Exchange(tuple(sends), tuple(receives))

    def chunk(self, number: int) -> Chunk | None:
        """Return chunk ``number``; None if there is none."""
        chunks = self.chain.chunks
        return chunks[number] if 0 <= number < len(chunks) else None

    def total(self, chunk: Chunk) -> Array:
        """Return the array for the totals of this member's share of ``chunk``."""
        return self.chain.total(chunk, self.member, self.staging)

    def _reduce(self, chunk: Chunk) -> Reduce:
        """Return the reduction of this member's share of ``chunk`` over the members of its node.

        It starts from the prefix of the previous node, if there is one. The result is the prefix for the next node or,
        on the last node, the totals.
        """
        chain, node = self.chain, self.chain.nodes.node_of(self.member)
        low, high = chain.share(chunk, self.member)
        local_members = chain.nodes.local_members(self.member)
        values = [
            chain.vector(chunk.vector, local_member, self.staging)[low:high]
            for local_member in local_members
        ]
        if node > 0:
            values.insert(0, self._inbox(chunk))
        out = self.total(chunk) if node == chain.last else self._outbox(chunk)
        return Reduce(tuple(values), chain.reduction, out)

    def _inbox(self, chunk: Chunk) -> Array:
        """Return the array that receives the prefix of ``chunk``.

        All chunks use the same memory, since a prefix is reduced before the next one is received.
        """
        return self._box(self._memory[0], chunk, self.chain.nodes.node_of(self.member) - 1)

    def _outbox(self, chunk: Chunk) -> Array:
        """Return the array from which the prefix of ``chunk`` is sent.

        All chunks use the same memory, since a prefix has been sent before the next one is computed.
        """
        return self._box(self._memory[1], chunk, self.chain.nodes.node_of(self.member))

    def _box(self, memory: Array, chunk: Chunk, node: int) -> Array:
        """Return an array at the start of ``memory`` for this member's share of ``chunk``.

        It has the type of the prefix that leaves ``node``.
        """
        low, high = self.chain.share(chunk, self.member)
        dtype = self.chain.prefix_type(chunk.vector, node)
        return memory[: (high - low) * dtype.itemsize].view(dtype)

    @cached_property
    def _memory(self) -> tuple[Array, Array]:
        """Return the bytes of the inbox and of the outbox, each large enough for every chunk."""
        chain, node = self.chain, self.chain.nodes.node_of(self.member)
        shares = [(chunk, chain.share(chunk, self.member)) for chunk in chain.chunks]
        sizes = [
            max(
                (high - low) * chain.prefix_type(chunk.vector, k).itemsize
                for chunk, (low, high) in shares
            )
            for k in (node - 1, node)
        ]
        return np.empty(sizes[0], np.uint8), np.empty(sizes[1], np.uint8)


def _chunks_of(vector: Vector, fewest: int) -> int:
    """Return the number of chunks of ``vector`` if the smallest node has ``fewest`` members: at most MAX_CHUNKS."""
    share_bytes = vector.nbytes // fewest
    return min(max(share_bytes // CHUNK_BYTES, 1), MAX_CHUNKS)


def _end_of(vectors: Sequence[Vector]) -> int:
    """Return the bytes of vectors that follow each other, each at a multiple of 64 bytes."""
    return sum(aligned(vector.nbytes) for vector in vectors)
