"""Results that a replica group stores once: choice of the results that are stored in memory that the group shares.

All members of a group get the same result from an all-reduce, an all-gather or a collective-broadcast. If they can
access each other's memory, the result can be stored once for all members: this takes 1/n of the bytes, and each member
writes only its part. Memory that groups share is a colour, with one heap for each division of the devices into groups.

The live ranges on one device's schedule suffice to pack such a heap, for the following reasons. Only collectives among
exactly the groups that share the heap write its bytes, and these write nothing there before all members have started.
``Communicator.allocate_shared`` guarantees that, and ``Lowering.equal_results`` lists such ops. A member that has
started a collective has completed everything before it in the schedule. Therefore, if value b follows value a in some
bytes, and a's last use is at a position before b's start, then every member is past its last use of a when b is
written. No member reads b before its own done, which waits for all writers. This holds

* in a loop, where b may come from an earlier position on a later trip: members have started the same collective equally
  often, and each has read a before that. A value that is read after the loop is live until then, and a result of one
  trip is no loop state, so a trip that one member leaves out does not change the values that the others read;
* in branches, even if members take different ones: a collective in a branch runs only if its entire group took it;
* between a start and its done: b is in use from the start, a until the done of the collective that reads it;
* from one step to the next, since no such value outlives a step: outputs are private.

Other values may share bytes with such a result: an operand that is dead afterwards, or a consumer that works in place.
These continue to share: a slice is in shared memory only if each of its values is such a result. Values are moved to
shared heaps only as long as the sum of all heaps exceeds one heap by at most 1/128 of the moved bytes, because on
groups that span nodes each device holds every byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.buffers.colocation import Group, GroupKind
from runtime.buffers.heap.arena import Arena, Interval, lower_bound
from runtime.buffers.heap.heap import Packing, pack
from runtime.buffers.program import Program, ScheduledOp, Value, all_ops
from runtime.buffers.types import Color, Groups
from runtime.lowering import LOWERINGS
from spmd.lazy_dataclass import dataclass

#: Results of operands with up to this many bytes are not shared. Each member writes such a result entirely, from slots
#: (``node_memory``): that takes one rendezvous instead of two, which outweighs the bytes, and members of a shared
#: result would write to the same cache lines.
SMALL_OPERANDS = 4096

#: Fraction of the shared bytes by which all heaps together may grow. Otherwise a flag or a counter that reused bytes of
#: a large result would keep the result private.
_GROWTH = 1 / 128

#: Largest number of attempts to shrink a shared heap until the sum of heaps is as small as before.
_ATTEMPTS = 8


@dataclass(frozen=True)
class Heap:
    """Heap of one colour: its groups of values, and their offsets in the heap's allocation."""

    color: Color
    groups: tuple[Group, ...]
    packing: Packing


def heaps_of(program: Program, slices: Sequence[Group]) -> list[Heap]:
    """Return the packed heaps of ``slices``, the groups of temporaries and outputs, one for each colour.

    Heaps are ordered by memory space. In each space the private heap comes first, then shared heaps, those that save
    most first. There is always a heap of the default colour.
    """
    equal_results = _equal_results(program)
    spaces = sorted({0, *(group.memory_space for group in slices)})
    heaps = []
    for space in spaces:
        inside = [group for group in slices if group.memory_space == space]
        heaps += _heaps_in_space(space, inside, equal_results)
    return heaps


def intervals(groups: Sequence[Group]) -> list[Interval]:
    """Return the live intervals of ``groups``."""
    return [Interval(group.start, group.end, group.size) for group in groups]


def without(groups: Sequence[Group], taken: Sequence[Group]) -> list[Group]:
    """Return the ``groups`` that are not among ``taken``."""
    gone = set(map(id, taken))
    return [group for group in groups if id(group) not in gone]


def _equal_results(program: Program) -> dict[Value, Groups]:
    """Return the results that are equal on all members of a replica group, with the groups.

    All groups have the same number of members, which is more than one.
    """
    result: dict[Value, Groups] = {}
    in_order: dict[int, Groups] = {}
    written: list[Groups] = []  # retained, so that no other list gets its identity
    for op in all_ops(program.entry):
        if type(op) is ScheduledOp and sum(v.view.byte_size for v in op.operands) > SMALL_OPERANDS:
            found = LOWERINGS[op.instruction.opcode].equal_results(op.instruction, program.device)
            if id(found) not in in_order:
                written.append(found)
                in_order[id(found)] = tuple(sorted(tuple(sorted(group)) for group in found))
            groups = in_order[id(found)]
            if groups and len(groups[0]) > 1 and len({len(group) for group in groups}) == 1:
                result.update(dict.fromkeys(op.results, groups))
    return result


def _heaps_in_space(
    space: int, slices: list[Group], equal_results: dict[Value, Groups]
) -> list[Heap]:
    """Return the private heap of a memory space, then its shared heaps, as large as the sum of heaps allows."""
    own = slices
    packing = pack(intervals(own))
    room = packing.size
    shared = []
    for groups, candidates in _candidates(slices, equal_results):
        divided = _divide(own, candidates, room)
        if divided is not None:
            taken, heap, packing = divided
            shared.append(Heap(Color(space, groups), taken, heap))
            own = without(own, taken)
            room = max(room - heap.size, packing.size)
    return [Heap(Color(space), tuple(own), packing), *shared]


def shareable(program: Program, slices: Sequence[Group]) -> dict[int, Groups]:
    """Return the device groups that may share each of ``slices``, by the identity (``id``) of the slice's group.

    Slices that must be private are left out.
    """
    return _shareable(slices, _equal_results(program))


def _shareable(slices: Sequence[Group], equal_results: dict[Value, Groups]) -> dict[int, Groups]:
    """Return ``shareable``: a temporary all of whose values are equal results of the same groups."""
    found = {}
    for group in slices:
        if group.kind is GroupKind.TEMPORARY and group.size:
            groups = {equal_results.get(value, ()) for value in group.values}
            if len(groups) == 1 and (one := groups.pop()):
                found[id(group)] = one
    return found


def _candidates(
    slices: Sequence[Group], equal_results: dict[Value, Groups]
) -> list[tuple[Groups, list[Group]]]:
    """Return the slices that may be shared, by device groups. Those that save most on one node come first."""
    may_share = _shareable(slices, equal_results)
    found: dict[Groups, list[Group]] = {}
    for group in slices:
        if id(group) in may_share:
            found.setdefault(may_share[id(group)], []).append(group)

    def saved(entry: tuple[Groups, list[Group]]) -> float:
        groups, shared = entry
        return lower_bound(intervals(shared)) * (1 - 1 / len(groups[0]))

    return sorted(found.items(), key=lambda entry: (-saved(entry), entry[0]))


def _divide(
    own: list[Group], candidates: list[Group], room: int
) -> tuple[tuple[Group, ...], Packing, Packing] | None:
    """Return the candidates to move to a shared heap, the shared heap, and the remaining private heap.

    Both heaps together exceed ``room`` by at most _GROWTH of the shared one. The limit of the shared heap starts at an
    upper bound, and is lowered by the excess of both. Returns None if no candidate can be moved.
    """
    limit = int((room - lower_bound(intervals(without(own, candidates)))) * (1 + _GROWTH))
    for _ in range(_ATTEMPTS):
        taken, heap = _fill(candidates, limit)
        if not taken:
            return None
        left = pack(intervals(without(own, taken)))
        excess = heap.size + left.size - room
        if excess <= heap.size * _GROWTH:
            return taken, heap, left
        limit = heap.size - excess
    return None


def _fill(candidates: list[Group], limit: int) -> tuple[tuple[Group, ...], Packing]:
    """Pack as many of ``candidates``, the largest first, as fit in ``limit`` bytes. Returns these and their packing."""
    arena = Arena(len(candidates), limit)
    taken, offsets = [], []
    for group in sorted(candidates, key=lambda g: (-g.size, g.start - g.end, g.start)):
        offset = arena.allocate(Interval(group.start, group.end, group.size))
        if offset is not None:
            taken.append(group)
            offsets.append(offset)
    return tuple(taken), Packing(tuple(offsets), arena.size, "best fit, largest first")
