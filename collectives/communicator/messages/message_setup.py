"""Collectives that native code carries by messages: from the actions on their arrays to the program that is loaded.

Groups with two levels need memory of their nodes besides: staging for each collective, and counters for the meetings of
its members there.
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
"""Memory that the node shares, so many bytes of this rank: every rank of the world calls it. RunError on all alike."""


class Prepares(Protocol):
    """The messages of one collective."""

    def prepare(self, exchange: Exchange) -> Messages:
        """Requests for an exchange, which may be started any number of times."""
        ...


@dataclass(frozen=True)
class _Bound:
    """A collective before it is connected. ``number``: how many were bound before it, on every rank.

    algorithm: in two levels. last: actions at the end of each run.
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
    """``keep``: the memory that ``native`` addresses."""

    bound: _Bound
    native: CollectiveProgram
    keep: tuple[object, ...]


class MessageSetup:
    """One rank's part in it. All ranks of the world make the same calls.

    A rank's memory, for each collective in two levels: a line with the counter by which its local members see how far
    it is, and staging.
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
        """``engine``: what runs actions; without one, nothing is native. ``notify``: called with messages for the user.

        open_window: None where ranks do not share memory, and no collective has two levels.
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
        """Some collective is bound, of this rank or of others alone."""
        self._count += 1

    def can_carry(self, collective: Collective, buffers: Buffers) -> bool:
        """Return whether native code can run the collective. The result is equal for all members."""
        if self._engine is None or collective.data_dependent:
            return False
        return collective.has_code(self._engine, buffers.operands)

    def bind(self, native: NativeCollective, channel: Prepares, last: Sequence[Copy]) -> None:
        """``native`` gets its actions in ``connect``; ``last``: what is to be done at the end of each run."""
        nodes = self._nodes.of_group(native.group)
        algorithm = None
        if self._open_window is not None and nodes.is_hierarchical:
            algorithm = native.collective.hierarchical_algorithm(nodes, native.buffers)
        self._bound.append(_Bound(native, channel, self._count, algorithm, last))

    def connect(self) -> None:
        """Make ready what was bound since the last time."""
        bound, self._bound = self._bound, []
        programs = self._in_two_levels([one for one in bound if one.algorithm is not None])
        programs += map(self._by_messages_alone, (one for one in bound if one.algorithm is None))
        if self._engine is not None:
            loaded = self._engine.load([program.native for program in programs])
            for program, actions in zip(programs, loaded, strict=True):
                program.bound.native.load(actions, program.keep)

    def _by_messages_alone(self, one: _Bound) -> _Program:
        buffers = one.buffers
        alone = one.collective.message_actions(self._rank, buffers.operands, buffers.results)
        actions = (*alone, *one.last)
        return _Program(one, native_program(actions, one.channel.prepare), actions)

    def _in_two_levels(self, bound: Sequence[_Bound]) -> list[_Program]:
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
            self._notify(f"collectives between nodes go by messages alone: {error}")
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
        """``starts``: where the collective's memory lies in each rank's segment; ``own`` is this rank's."""
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
        """The counter's line and the staging of ``rank`` in a collective."""
        assert one.algorithm is not None
        member = one.collective.group.index(rank)
        return MEMORY_ALIGNMENT + aligned(one.algorithm.staging_bytes(member))
