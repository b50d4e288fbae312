"""Set-up of collectives by messages that native code runs: their actions become programs, which the engine loads.

A hierarchical collective (``hierarchical.algorithms``) also needs shared memory on each node: staging for each member,
and a counter for the barriers of the members on the node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from collectives.communicator.actions.array_actions import Copy, Exchange
from collectives.communicator.actions.engine import CollectiveEngine
from collectives.communicator.actions.shared_actions import CollectiveProgram, Messages
from collectives.communicator.actions.shared_buffers import MEMORY_ALIGNMENT, Buffers, aligned
from collectives.communicator.group import Array
from collectives.communicator.hierarchical.algorithms import HierarchicalAlgorithm
from collectives.communicator.kinds.op import Collective
from collectives.communicator.messages.native_message_actions import LocalMembers, native_program
from collectives.communicator.native_collective import NativeCollective
from collectives.communicator.node.node import ByteExchange, Nodes
from collectives.communicator.node.shared_window import SharedWindow
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass

OpenWindow: TypeAlias = Callable[[int], tuple[SharedWindow, Array]]
"""Function that opens a window with the given bytes of this rank. Every rank calls it; RunError is raised on all."""


class Prepares(Protocol):
    """A channel that creates the messages of one collective."""

    def prepare(self, exchange: Exchange) -> Messages:
        """Return the requests of ``exchange``, which may be started any number of times."""
        ...


@dataclass(frozen=True)
class _Bound:
    """A collective that is bound but not yet connected.

    ``number`` counts the collectives that the ranks bind, and is equal on all members of the group. ``algorithm`` is
    the hierarchical algorithm; None if messages alone carry the collective. ``last`` are copies at the end of each run.
    """

    native: NativeCollective
    channel: Prepares
    number: int
    algorithm: HierarchicalAlgorithm | None
    last: Sequence[Copy]

    @property
    def buffers(self) -> Buffers:
        return self.native.buffers

    @property
    def collective(self) -> Collective:
        return self.native.collective


@dataclass(frozen=True)
class _Program:
    """The program of one collective. ``keep`` holds the memory that ``native`` addresses."""

    bound: _Bound
    native: CollectiveProgram
    keep: tuple[object, ...]


class MessageSetup:
    """One rank's part of the set-up. All ranks of the world must make the same calls.

    Each rank exposes memory to its node for each hierarchical collective: a cache line with the counter of its signals,
    followed by its staging.
    """

    def __init__(
        self,
        exchange: ByteExchange,
        nodes: Nodes,
        rank: int,
        engine: CollectiveEngine | None,
        open_window: OpenWindow | None,
        notify: Callable[[str], None],
    ) -> None:
        """Create the set-up of ``rank``. ``exchange`` gathers bytes from all ranks.

        ``engine`` runs the actions; without an engine no collective is native. ``open_window`` opens memory that the
        ranks of a node share; if it is None, no collective is hierarchical. ``notify`` is called with messages for the
        user.
        """
        self._exchange = exchange
        self._nodes = nodes
        self._rank = rank
        self._engine = engine
        self._open_window = open_window if engine is not None and nodes.count > 1 else None
        self._notify = notify
        self._count = 0
        self._bound: list[_Bound] = []

    def count(self) -> None:
        """Count one more bound collective, by whichever transport.

        All ranks must call it for each collective, so that the members of a group number their collectives alike.
        """
        self._count += 1

    def can_carry(self, collective: Collective, buffers: Buffers) -> bool:
        """Return whether native code can run the collective. The result is equal for all members."""
        if self._engine is None or collective.data_dependent:
            return False
        return collective.has_code(self._engine, buffers.operands)

    def bind(self, native: NativeCollective, channel: Prepares, last: Sequence[Copy]) -> None:
        """Bind ``native``, whose program ``connect`` will load.

        ``channel`` creates its messages. ``last`` are copies to perform at the end of each run.
        """
        nodes = self._nodes.of_group(native.group)
        algorithm = None
        if self._open_window is not None and nodes.is_hierarchical:
            algorithm = native.collective.hierarchical_algorithm(nodes, native.buffers)
        self._bound.append(_Bound(native, channel, self._count, algorithm, last))

    def connect(self) -> None:
        """Load the programs of the collectives that were bound since the last call. Every rank must call it.

        If no memory can be shared, hierarchical collectives fall back to messages alone, and the user is notified.
        """
        bound, self._bound = self._bound, []
        programs = self._in_two_levels([one for one in bound if one.algorithm is not None])
        programs += map(self._by_messages_alone, (one for one in bound if one.algorithm is None))
        if self._engine is not None:
            loaded = self._engine.load([program.native for program in programs])
            for program, actions in zip(programs, loaded, strict=True):
                program.bound.native.load(actions, program.keep)

    def _by_messages_alone(self, one: _Bound) -> _Program:
        """Return the program of a collective that uses no shared memory."""
        buffers = one.buffers
        alone = one.collective.message_actions(self._rank, buffers.operands, buffers.results)
        actions = (*alone, *one.last)
        return _Program(one, native_program(actions, one.channel.prepare), actions)

    def _in_two_levels(self, bound: Sequence[_Bound]) -> list[_Program]:
        """Return the programs of the hierarchical collectives ``bound``, for which a window is opened.

        Every rank must call it, with an empty sequence if it has bound no such collective.
        """
        if self._open_window is None:
            return []
        offsets, total = {}, 0
        for one in bound:
            offsets[one.number] = total
            total += self._bytes_of(one, self._rank)
        encoded = json.dumps({"bytes": total, "offsets": list(offsets.items())}).encode()
        everyone = [json.loads(data) for data in self._exchange(encoded)]
        if not any(other["bytes"] for other in everyone):
            return []
        try:
            window, own = self._open_window(total)
        except RunError as error:
            self._notify(f"collectives between nodes use MPI messages only: {error}")
            return [self._by_messages_alone(one) for one in bound]
        where = {rank: dict(everyone[rank]["offsets"]) for rank in self._nodes.own.ranks}
        programs = []
        for one in bound:
            starts = {rank: where[rank].get(one.number, 0) for rank in where}
            programs.append(self._hierarchical(one, window, starts, own))
        return programs

    def _hierarchical(
        self, one: _Bound, window: SharedWindow, starts: dict[int, int], own: Array
    ) -> _Program:
        """Return the program of a hierarchical collective.

        ``starts`` holds, by rank of this node, the offset in bytes of the collective's memory in that rank's segment of
        ``window``. ``own`` is this rank's segment.
        """
        group = one.collective.group
        members = {rank: group.index(rank) for rank in self._nodes.own.ranks if rank in group}
        staging = {}
        for rank, member in members.items():
            start, size = starts[rank], self._bytes_of(one, rank)
            segment = own if rank == self._rank else window.segment(rank, start + size)
            staging[member] = segment[start + MEMORY_ALIGNMENT : start + size]
        others = tuple(rank for rank in members if rank != self._rank)
        counter, *counters = (window.address(rank, starts[rank]) for rank in (self._rank, *others))
        assert one.algorithm is not None
        actions = (*one.algorithm.actions(members[self._rank], one.buffers, staging), *one.last)
        local_members = LocalMembers(counter, others, tuple(counters))
        native = native_program(actions, one.channel.prepare, local_members, one.algorithm.barriers)
        return _Program(one, native, (*actions, own))

    def _bytes_of(self, one: _Bound, rank: int) -> int:
        """Return the bytes that ``rank`` exposes for a hierarchical collective: counter line and staging."""
        assert one.algorithm is not None
        member = one.collective.group.index(rank)
        return MEMORY_ALIGNMENT + aligned(one.algorithm.staging_bytes(member))
