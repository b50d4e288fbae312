"""Members of a group that run actions over shared memory, taking turns in any order, in one thread.

A member's buffers are its own before it starts and as soon as it is done: they are checked and overwritten then. So a
peer that reads or writes them too early or too late is found, whatever the order was. Results that members hold together
stay as they are from done to the next start.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from collectives.communicator.actions.engine import LoadedCollective, RunStatus
from collectives.communicator.actions.shared_actions import CollectiveProgram
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.kinds.op import Collective
from collectives.communicator.node.shared_protocols import (
    MemberMemory,
    action_program,
    needs_staging,
)
from runtime.cpu.collective.collective_engine import native_collective_engine

Arrays = list[np.ndarray]
Mutation = Callable[[CollectiveProgram], CollectiveProgram]
_POISON = 0xA5


@dataclass(frozen=True)
class Case:
    """``operands(member, run)`` and ``results()`` of a collective; ``aliases``: results that are operands.

    ``together``: every so many members hold their results together (member 0, 2, 4, ... where it is 2); 0 for nobody.
    ``tiles``: operands or results lie in the larger ones of their numbers, as the members' own tiles.
    """

    collectives: Sequence[Collective]
    operands: Callable[[int, int], Arrays]
    results: Callable[[], Arrays]
    aliases: dict[int, int] = field(default_factory=dict)
    together: int = 0
    tiles: bool = False


@dataclass
class Member:
    buffers: Buffers
    program: CollectiveProgram
    actions: LoadedCollective
    run: int = 0
    running: bool = False
    snapshot: list[bytes] = field(default_factory=list)


class World:
    """All members of one group, in this process."""

    def __init__(self, case: Case, *, slots: bool, mutate: Mutation = lambda p: p) -> None:
        self.case = case
        self.count = len(case.collectives)
        self._memory: Arrays = []
        self.buffers: list[Buffers] = []
        for member in range(self.count):
            self.buffers.append(self._buffers(member))
        memories = [self._member_memory(buffers, slots) for buffers in self.buffers]
        self.members = []
        for index, (collective, buffers) in enumerate(
            zip(case.collectives, self.buffers, strict=True)
        ):
            staging = None
            if not (slots and self.count > 1) and needs_staging(collective, index, buffers):
                own = [np.empty_like(result) for result in buffers.results]
                self._memory += own
                staging = [one.ctypes.data for one in own]
            program = mutate(action_program(collective, index, buffers, memories, staging))
            (actions,) = native_collective_engine().load([program])
            member = Member(buffers, program, actions)
            self._overwrite(member)
            self.members.append(member)

    def play(self, runs: int, rng: random.Random) -> None:
        """Every member takes part in ``runs`` runs; who moves next is drawn."""
        moves = 0
        while waiting := [m for m in range(self.count) if self.members[m].run < runs]:
            index = rng.choice(waiting)
            member = self.members[index]
            if member.running:
                outcome = member.actions.advancing(0)()
            else:
                outcome = self._start(index, member)
            if outcome == RunStatus.COMPLETE:
                self._finish(index, member)
            else:
                assert outcome == RunStatus.BLOCKED
                assert member.actions.missing()
            moves += 1
            assert moves < 10_000, "the members wait for each other"
        for index in range(self.count):
            self._require_untouched(index, "after the last run")

    def _start(self, index: int, member: Member) -> int:
        self._require_untouched(index, "before it started")
        for array, value in zip(
            member.buffers.operands, self.case.operands(index, member.run), strict=True
        ):
            np.copyto(array, value)
        member.running = True
        return member.actions.start()

    def _require_untouched(self, index: int, when: str) -> None:
        member = self.members[index]
        touched = [one.tobytes() for one in self._arrays(member)] != member.snapshot
        assert not touched, f"a peer touched buffers of member {index} {when}"

    def _finish(self, index: int, member: Member) -> None:
        collective = self.case.collectives[index]
        operands = [self.case.operands(m, member.run) for m in range(self.count)]
        want = self.case.results()
        collective.deliver(collective.combine(operands), index, want)
        for result, right in zip(member.buffers.results, want, strict=True):
            assert result.tobytes() == right.tobytes(), f"member {index} has a wrong result"
        member.running = False
        member.run += 1
        self._overwrite(member)

    def _overwrite(self, member: Member) -> None:
        """The owner uses its own buffers for something else."""
        own = member.buffers.operands if self.case.together else self._arrays(member)
        for array in own:
            array.reshape(-1).view(np.uint8)[:] = _POISON
        member.snapshot = [one.tobytes() for one in self._arrays(member)]

    def _arrays(self, member: Member) -> Arrays:
        return [*member.buffers.operands, *member.buffers.results]

    def _buffers(self, member: int) -> Buffers:
        operands = [np.empty_like(one) for one in self.case.operands(member, 0)]
        results = [np.empty_like(one) for one in self.case.results()]
        for result, operand in self.case.aliases.items():
            results[result] = operands[operand]
        if self.case.together and member >= self.case.together:
            results = list(self.buffers[member - self.case.together].results)
        if self.case.tiles and self.case.collectives[0].kind == "all-gather":
            operands = [np.split(result, self.count)[member] for result in results]
        elif self.case.tiles:
            results = [np.split(operand, self.count)[member] for operand in operands]
        return Buffers(tuple(operands), tuple(results))

    def _member_memory(self, buffers: Buffers, slots: bool) -> MemberMemory:
        size = max(buffers.operand_bytes, 64) if slots else 0
        control = np.zeros(64 + 2 * size, np.uint8)
        self._memory.append(control)
        first = int(control.ctypes.data)
        return MemberMemory(
            first,
            tuple(int(one.ctypes.data) for one in buffers.operands),
            tuple(int(one.ctypes.data) for one in buffers.results),
            (first + 64, first + 64 + size) if slots and self.count > 1 else (),
        )
