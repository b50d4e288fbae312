"""A reduction in group order that goes from node to node: what crosses is one running value, not one for each member.

    nodes ((0,1), (2,3)), a sum:   ((x0 + x1) + x2) + x3
                                    `-- node 0 --´  `--- node 1 ---´

Where group order goes through one node after the other, the values of the first node's members come first: that node
reduces them to a *prefix*, the next one goes on from there, and so forth. These are the additions of ``kinds``, one by
one, in its types (a prefix of bf16 travels in f32): the same bits. The last node has the totals.

Local members divide the elements among themselves, so that each carries its share over the link, and all is done chunk
by chunk: in *cycle* t, node j sends the prefix of chunk t - j to the next node while it receives that of chunk t - j +
1.

    cycle         0     1     2     3     4        an all-reduce of three chunks on two nodes: totals go back the same
    node 0 sends  c0    c1    c2                   way, node by node
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
"""Of a member's share that goes in one message; fewer would be latency, more would leave links idle."""

MAX_CHUNKS = 32

Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Vector:
    """Elements of one type that are reduced together."""

    dtype: np.dtype[Any]
    size: int

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Chunk:
    """``elements`` of a vector; ``number`` in the order in which chunks travel."""

    number: int
    vector: int
    elements: Range


@dataclass(frozen=True)
class ChainReduction:
    """Chain reduction: the elements of ``vectors`` that each member reduces, and the transfers between nodes. Group
    order goes node by node.

    Staging: the vectors, each at a multiple of 64 bytes, and then the member's share of each chunk's totals.
    """

    nodes: GroupNodes
    vectors: tuple[Vector, ...]
    reduction: ReductionKind

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """The smallest node has the largest shares."""
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
        """The node that has the totals."""
        return len(self.nodes.nodes) - 1

    def share(self, chunk: Chunk, member: int) -> Range:
        """The elements of the vector that ``member`` reduces for its node."""
        low, high = chunk.elements
        first, end = cut(high - low, len(self.nodes.local_members(member)))[
            self.nodes.index_on_node(member)
        ]
        return low + first, low + end

    def prefix_type(self, vector: int, node: int) -> np.dtype[Any]:
        """Return the dtype of the partial reduction of a vector that leaves `node`: the operand's dtype if it holds one
        operand, else the accumulator dtype."""
        dtype = self.vectors[vector].dtype
        return dtype if node == 0 and len(self.nodes.nodes[0]) == 1 else accumulator_type(dtype)

    @property
    def vector_bytes(self) -> int:
        """Bytes of the vectors, and of their totals."""
        return sum(vector.nbytes for vector in self.vectors)

    @property
    def prefix_bytes(self) -> int:
        """Bytes of all prefixes, which cross from each node but the last to the next."""
        return sum(
            vector.size * self.prefix_type(k, node).itemsize
            for k, vector in enumerate(self.vectors)
            for node in range(self.last)
        )

    # ---- memory
    def staging_bytes(self, member: int) -> int:
        return self._totals_of[member][-1]

    def vector(self, k: int, member: int, staging: Staging) -> Array:
        """Vector ``k`` as ``member`` shows it."""
        start = _end_of(self.vectors[:k])
        one = self.vectors[k]
        return staging[member][start : start + one.nbytes].view(one.dtype)

    def total(self, chunk: Chunk, member: int, staging: Staging) -> Array:
        """The totals of the share that ``member`` has of ``chunk``."""
        start = self._totals_of[member][chunk.number]
        size = self._share_bytes(chunk, member)
        return staging[member][start : start + size].view(self.vectors[chunk.vector].dtype)

    @cached_property
    def _totals_of(self) -> list[list[int]]:
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
        low, high = self.share(chunk, member)
        return (high - low) * self.vectors[chunk.vector].dtype.itemsize

    # ---- what crosses
    def toward(self, chunk: Chunk, member: int, node: int, share: Array) -> list[Message]:
        """``share``, what ``member`` has of ``chunk``, in pieces: those that are also shares of members of ``node``."""
        low, high = self.share(chunk, member)
        found = []
        for other in self.nodes.nodes[node]:
            both = common((low, high), self.share(chunk, other))
            if both is not None:
                found.append((other, share[both[0] - low : both[1] - low]))
        return found


@dataclass(frozen=True)
class ChainReductionRun:
    """One member's part: from vectors in staging to totals in staging."""

    chain: ChainReduction
    member: int
    staging: Staging

    def actions(
        self, totals: Callable[[ChainReductionRun, int], Exchange], cycles: int
    ) -> Iterator[ArrayAction]:
        """``totals``: what crosses in a slot beside prefixes; in slot t the last node has reduced chunk t - last."""
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
        chunks = self.chain.chunks
        return chunks[number] if 0 <= number < len(chunks) else None

    def total(self, chunk: Chunk) -> Array:
        """This member's share of the totals."""
        return self.chain.total(chunk, self.member, self.staging)

    def _reduce(self, chunk: Chunk) -> Reduce:
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
        """For the prefix that comes; it is used up before the next one comes."""
        return self._box(self._memory[0], chunk, self.chain.nodes.node_of(self.member) - 1)

    def _outbox(self, chunk: Chunk) -> Array:
        """For the prefix that is sent; it has gone before the next one is made."""
        return self._box(self._memory[1], chunk, self.chain.nodes.node_of(self.member))

    def _box(self, memory: Array, chunk: Chunk, node: int) -> Array:
        low, high = self.chain.share(chunk, self.member)
        dtype = self.chain.prefix_type(chunk.vector, node)
        return memory[: (high - low) * dtype.itemsize].view(dtype)

    @cached_property
    def _memory(self) -> tuple[Array, Array]:
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
    share_bytes = vector.nbytes // fewest
    return min(max(share_bytes // CHUNK_BYTES, 1), MAX_CHUNKS)


def _end_of(vectors: Sequence[Vector]) -> int:
    """Return the bytes of vectors that lie one after the other."""
    return sum(aligned(vector.nbytes) for vector in vectors)
