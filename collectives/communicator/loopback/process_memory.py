"""Collectives among the devices of one process, over the address space that the devices share.

A collective is linked when its last member has bound it, since the arrays of all members are then known. The actions
are those of the ranks of a node (``shared_protocols.py``), without windows and without messages.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import field
from typing import TypeAlias

from collectives.communicator.actions.engine import CollectiveEngine, LoadedCollective
from collectives.communicator.actions.shared_actions import CollectiveProgram
from collectives.communicator.actions.shared_buffers import (
    MEMORY_ALIGNMENT,
    Buffers,
    addresses_of,
    aligned,
    private_memory,
)
from collectives.communicator.group import Array, Group, describe_group
from collectives.communicator.kinds.op import Collective
from collectives.communicator.native_collective import NativeCollective
from collectives.communicator.node.shared_protocols import (
    MemberMemory,
    action_program,
    needs_staging,
)
from collectives.communicator.wait_context import WaitingWorld
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass

_SLOT_BYTES = 4096
"""Operands of up to this many bytes use slots: a copy costs less than a second barrier."""

Key: TypeAlias = tuple[str, Group, int]
"""Instruction name, group, and number of earlier bindings of both by the member."""


class MemberCollective(NativeCollective):
    """A NativeCollective whose first use waits until all members have bound it."""

    bound: Bound

    def start(self) -> None:
        self._await_members()
        super().start()

    def complete(self) -> None:
        self._await_members()
        super().complete()

    def _await_members(self) -> None:
        if not self.is_loaded:
            self._world.wait_until(lambda: self.is_loaded, self.name, self.group, self.bound.absent)

    @property
    def _loaded(self) -> LoadedCollective:
        self._await_members()
        return super()._loaded


@dataclass
class Bound:
    """The members of ``group`` that have bound a collective so far, by rank."""

    group: Group
    members: dict[int, MemberCollective] = field(default_factory=dict)

    def absent(self) -> list[int]:
        """Return the ranks that have not bound the collective yet."""
        return [rank for rank in self.group if rank not in self.members]


class ProcessMemory:
    """The native collectives among the devices of one process. It is thread-safe."""

    def __init__(self, size: int, engine: CollectiveEngine, spins: int) -> None:
        self._engine = engine
        self._spins = spins
        self._lock = threading.Lock()
        self._visits: list[Counter[tuple[str, Group]]] = [Counter() for _ in range(size)]
        self._bound: dict[Key, Bound] = {}

    def can_share(self, collective: Collective, buffers: Buffers) -> bool:
        """Return whether the engine has code for the collective. The result is equal for all members."""
        return collective.has_code(self._engine, buffers.operands)

    def bind(
        self, world: WaitingWorld, collective: Collective, name: str, buffers: Buffers
    ) -> NativeCollective:
        """Bind a collective for one member, whose communicator is ``world``.

        The last member to bind loads the actions of all members. Raises RunError if members have bound different
        collectives, or arrays of different shapes or types.
        """
        own = MemberCollective(world, collective, name, buffers, self._spins)
        group, rank = collective.group, world.rank
        with self._lock:
            visit = self._visits[rank][name, group]
            self._visits[rank][name, group] += 1
            bound = self._bound.setdefault((name, group, visit), Bound(group))
            own.bound = bound
            bound.members[rank] = own
            if not bound.absent():
                del self._bound[name, group, visit]
                self._link([bound.members[member] for member in group])
        return own

    def _link(self, members: list[MemberCollective]) -> None:
        """Load the actions of all ``members``, which are in group order and have all bound the collective."""
        _require_consistency(members)
        through_slots = _go_through_slots(members)
        slot_bytes = members[0].buffers.operand_bytes if through_slots else 0
        # One allocation, in which the slots of members lie at equal distances, so that ``join_copies`` can join reads.
        stride = MEMORY_ALIGNMENT + aligned(2 * slot_bytes)
        control = private_memory(len(members) * stride)
        (start,) = addresses_of([control])
        memories = [
            _memory_of(member.buffers, start + index * stride, slot_bytes, through_slots)
            for index, member in enumerate(members)
        ]
        programs: list[CollectiveProgram] = []
        staging: list[list[Array]] = []
        for index, member in enumerate(members):
            own: list[Array] = []
            if not through_slots and needs_staging(member.collective, index, member.buffers):
                own = [private_memory(result.nbytes) for result in member.buffers.results]
            staging.append(own)
            addresses = addresses_of(own) or None
            programs.append(
                action_program(member.collective, index, member.buffers, memories, addresses)
            )
        everyones = [member.buffers for member in members]
        loaded = self._engine.load(programs)
        for member, actions, stage in zip(members, loaded, staging, strict=True):
            member.load(actions, (control, everyones, stage))


def _go_through_slots(members: list[MemberCollective]) -> bool:
    """Return whether the collective uses slots: if its operands are small or it cannot run in place.

    Slots may have any size here, since there are no messages to fall back to.
    """
    first = members[0]
    if len(members) == 1 or first.collective.data_dependent:
        return False
    if first.buffers.operand_bytes <= _SLOT_BYTES:
        return True
    return not all(one.collective.can_run_in_place(one.buffers) for one in members)


def _memory_of(buffers: Buffers, start: int, slot_bytes: int, through_slots: bool) -> MemberMemory:
    """Return the memory of a member whose counter is at address ``start``, followed by its slots."""
    slot = start + MEMORY_ALIGNMENT
    slots = (slot, slot + slot_bytes) if through_slots else ()
    return MemberMemory(start, addresses_of(buffers.operands), addresses_of(buffers.results), slots)


def _require_consistency(members: list[MemberCollective]) -> None:
    """Raise RunError unless all members have bound equal collectives and arrays of equal shapes and types."""

    def bound(member: MemberCollective) -> object:
        arrays = (*member.buffers.operands, *member.buffers.results)
        return member.collective, [(array.shape, array.dtype) for array in arrays]

    others = [one for one in members if bound(one) != bound(members[0])]
    if others:
        ranks = tuple(one.group[members.index(one)] for one in others)
        raise RunError(
            f"{members[0].name}: ranks {describe_group(ranks)} bound another collective here than rank "
            f"{members[0].group[0]}: the ranks do not run the same program"
        )
