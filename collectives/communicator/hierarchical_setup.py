"""What collectives in two levels need of a node's memory: staging for each, and the meetings of its members there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from collectives.communicator.algorithms import Step, message_steps
from collectives.communicator.hierarchical import HierarchicalPlan
from collectives.communicator.hierarchical_plans import hierarchical_plan
from collectives.communicator.interface import MEMORY_ALIGNMENT
from collectives.communicator.kinds import Collective
from collectives.communicator.node import ByteExchange, Nodes
from collectives.communicator.reduction import Array
from collectives.communicator.shared_buffers import Buffers, aligned
from collectives.communicator.shared_steps import (
    Await,
    LoadedSteps,
    Outcome,
    Signal,
    StepEngine,
    StepProgram,
)
from collectives.communicator.shared_window import SharedWindow
from spmd.errors import RunError

OpenWindow: TypeAlias = Callable[[int], tuple[SharedWindow, Array]]
"""Memory that the node shares, so many bytes of this rank: every rank of the world calls it. RunError on all alike."""


class NodeMeeting:
    """One of the meetings that a collective's members on this node have in each run."""

    def __init__(self, steps: LoadedSteps, memory: Array) -> None:
        """``memory``: an array of the window in which the counters lie, which keeps it."""
        self._memory = memory
        self.start = steps.start
        self.late = steps.missing
        self._look = steps.advancing(0)

    def poll(self) -> bool:
        return self._look() == Outcome.COMPLETE


class CarriedCollective(Protocol):
    """A bound collective that waits for its steps."""

    def load(self, steps: Sequence[Step], meetings: Sequence[NodeMeeting] = ()) -> None: ...


@dataclass(frozen=True)
class _Bound:
    """A collective in two levels before it is connected. ``number``: how many were bound before it, on every rank."""

    carried: CarriedCollective
    number: int
    collective: Collective
    plan: HierarchicalPlan
    buffers: Buffers


class HierarchicalSetup:
    """One rank's part in it. All ranks of the world make the same calls.

    A rank's memory, for each collective: a line with the counter by which its mates see how far it is, and staging.
    """

    def __init__(
        self,
        exchange: ByteExchange,
        nodes: Nodes,
        rank: int,
        engine: StepEngine | None,
        open_window: OpenWindow,
        notify: Callable[[str], None],
    ) -> None:
        """``engine``: what runs meetings; without one, no collective has two levels. ``notify``: told why not."""
        self._exchange = exchange
        self._nodes = nodes
        self._rank = rank
        self._engine = engine if nodes.count > 1 else None
        self._open_window = open_window
        self._notify = notify
        self._count = 0
        self._bound: list[_Bound] = []

    def count(self) -> None:
        """Some collective is bound, of this rank or of others alone."""
        self._count += 1

    def load(self, carried: CarriedCollective, collective: Collective, buffers: Buffers) -> None:
        """Give ``carried`` its steps: now where it goes by messages alone, else in ``connect``."""
        nodes = self._nodes.of_group(collective.group)
        plan = hierarchical_plan(collective, nodes, buffers) if self._engine else None
        if plan is None:
            self._load_messages(carried, collective, buffers)
        else:
            self._bound.append(_Bound(carried, self._count, collective, plan, buffers))

    def connect(self) -> None:
        """Make ready what was bound since the last time."""
        bound, self._bound = self._bound, []
        if self._engine is None:
            return
        offsets, total = {}, 0
        for one in bound:
            offsets[one.number] = total
            total += self._bytes_of(one, self._rank)
        told = json.dumps({"bytes": total, "offsets": list(offsets.items())}).encode()
        everyone = [json.loads(data) for data in self._exchange(told)]
        if not any(other["bytes"] for other in everyone):
            return
        try:
            window, own = self._open_window(total)
        except RunError as error:
            self._notify(f"collectives between nodes go by messages alone: {error}")
            for one in bound:
                self._load_messages(one.carried, one.collective, one.buffers)
            return
        where = {rank: dict(everyone[rank]["offsets"]) for rank in self._nodes.own.ranks}
        for one in bound:
            starts = {rank: where[rank].get(one.number, 0) for rank in where}
            self._load(one, window, starts, own)

    def _load(self, one: _Bound, window: SharedWindow, starts: dict[int, int], own: Array) -> None:
        """``starts``: where the collective's memory lies in each rank's segment; ``own`` keeps the window."""
        group = one.collective.group
        mates = {rank: group.index(rank) for rank in self._nodes.own.ranks if rank in group}
        staging = {}
        for rank, member in mates.items():
            start, size = starts[rank], self._bytes_of(one, rank)
            segment = own if rank == self._rank else window.segment(rank, start + size)
            staging[member] = segment[start + MEMORY_ALIGNMENT : start + size]
        counters = {rank: window.address(rank, starts[rank]) for rank in mates}
        programs = [
            self._meeting(counters, number, one.plan.meetings)
            for number in range(1, one.plan.meetings + 1)
        ]
        assert self._engine is not None
        meetings = [NodeMeeting(steps, own) for steps in self._engine.load(programs)]
        steps = tuple(one.plan.steps(mates[self._rank], one.buffers, staging))
        one.carried.load(steps, meetings)

    def _meeting(self, counters: dict[int, int], number: int, meetings: int) -> StepProgram:
        others = tuple(rank for rank in counters if rank != self._rank)
        steps: list[Signal | Await] = [Signal(counters[self._rank], number)]
        if others:
            steps.append(Await(others, tuple(counters[rank] for rank in others), number))
        return StepProgram(tuple(steps), tuple(steps), meetings)

    def _bytes_of(self, one: _Bound, rank: int) -> int:
        """The counter's line and the staging of ``rank`` in a collective."""
        member = one.collective.group.index(rank)
        return MEMORY_ALIGNMENT + aligned(one.plan.staging_bytes(member))

    def _load_messages(
        self, carried: CarriedCollective, collective: Collective, buffers: Buffers
    ) -> None:
        carried.load(message_steps(collective, self._rank, buffers.operands, buffers.results))
