"""Results that a replica group holds once: which may be, and which shall be.

All members of a group get the same from an all-reduce, an all-gather or a collective-broadcast. Where they reach each
other's memory it may lie there once for all of them: 1/n of the bytes, and each member writes its part alone. Memory
that groups hold together is a colour, with one heap for each way to divide the devices into groups.

Why lives on one device's schedule are enough to pack such a heap. Its bytes are written by nothing but collectives
among exactly the groups that hold it, and these write nothing there before all members have started: the promise of
``Communicator.allocate_shared``, and the reason why ``Lowering.alike`` names the kinds. A member that has started a
collective has done everything that comes before it in the schedule. So if value b follows value a in some bytes, with
a's last use at a position before b's start, then every member is past its last use of a when b is written; and nobody
reads b before its own done, which waits for all who write. This holds

* in a loop, where b may come from an earlier position on a later trip: members have started the same collective as
  often as each other, and a was read before that on each of them. What is read after the loop lives until then, and a
  result of one trip is no loop state, so no trip that one member leaves out changes what the others read;
* in branches, even where members take different ones: a collective in a branch is met only if its whole group took it;
* between a start and its done: b is in use from the start, a until the done of whatever reads it;
* from one step to the next, since nothing here outlives a step: outputs are private.

What else shares bytes with such a result, its dying operand or a consumer that works in place, keeps doing so: a place
is shared memory only if each of its values is such a result. And no more of them are moved than leaves the sum of all
heaps as small as one heap would be, but for a hundredth of what is moved, since groups that span nodes hold every byte
of it on each device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.buffers.arena import Arena, Interval, lower_bound
from runtime.buffers.colocation import Group, GroupKind
from runtime.buffers.heap import Packing, pack
from runtime.buffers.program import Program, Step, Value, all_steps
from runtime.buffers.types import Color, Groups
from runtime.lowering import LOWERINGS

#: Up to this many bytes of operands, each member writes the whole result by itself, from slots (``node_memory``): one
#: meeting instead of two counts for more than the bytes, and members would write to the same lines of the caches.
SMALL_OPERANDS = 4096

#: Of the bytes that a group holds once, those by which all heaps together may grow: a flag or a counter that lay over a
#: large result before must not keep that private.
_GROWTH = 1 / 128

#: How often a heap is made smaller until the sum of heaps is as small as it was.
_TRIES = 8


@dataclass(frozen=True)
class Heap:
    """Places of one colour, and where they lie in its allocation."""

    color: Color
    groups: tuple[Group, ...]
    packing: Packing


def heaps_of(program: Program, places: Sequence[Group]) -> list[Heap]:
    """``places`` (of temporaries and outputs) packed by colour, in order of colours; one is always the default."""
    alike = _alike(program)
    spaces = sorted({0, *(group.memory_space for group in places)})
    heaps = []
    for space in spaces:
        inside = [group for group in places if group.memory_space == space]
        heaps += _heaps_in_space(space, inside, alike)
    return heaps


def intervals(groups: Sequence[Group]) -> list[Interval]:
    return [Interval(group.start, group.end, group.size) for group in groups]


def without(groups: Sequence[Group], taken: Sequence[Group]) -> list[Group]:
    """``groups`` that are not among ``taken``."""
    gone = set(map(id, taken))
    return [group for group in groups if id(group) not in gone]


def _alike(program: Program) -> dict[Value, Groups]:
    """Results that are the same for all members of a group of several, and by which groups."""
    result: dict[Value, Groups] = {}
    in_order: dict[int, Groups] = {}
    written: list[Groups] = []  # kept, so that no other one gets its identity
    for step in all_steps(program.entry):
        if type(step) is Step and sum(v.view.byte_size for v in step.operands) > SMALL_OPERANDS:
            found = LOWERINGS[step.instruction.opcode].alike(step.instruction, program.device)
            if id(found) not in in_order:
                written.append(found)
                in_order[id(found)] = tuple(sorted(tuple(sorted(group)) for group in found))
            groups = in_order[id(found)]
            if groups and len(groups[0]) > 1 and len({len(group) for group in groups}) == 1:
                result.update(dict.fromkeys(step.results, groups))
    return result


def _heaps_in_space(space: int, places: list[Group], alike: dict[Value, Groups]) -> list[Heap]:
    """The devices' own heap, then those that groups share, as many bytes as keep the sum as small as one heap."""
    own = places
    packing = pack(intervals(own))
    room = packing.size
    shared = []
    for groups, candidates in _candidates(places, alike):
        divided = _divide(own, candidates, room)
        if divided is not None:
            taken, heap, packing = divided
            shared.append(Heap(Color(space, groups), taken, heap))
            own = without(own, taken)
            room = max(room - heap.size, packing.size)
    return [Heap(Color(space), tuple(own), packing), *shared]


def shareable(program: Program, places: Sequence[Group]) -> dict[int, Groups]:
    """By the identity of those of ``places`` that groups of devices may hold once: these groups."""
    return _shareable(places, _alike(program))


def _shareable(places: Sequence[Group], alike: dict[Value, Groups]) -> dict[int, Groups]:
    found = {}
    for group in places:
        if group.kind is GroupKind.TEMPORARY and group.size:
            groups = {alike.get(value, ()) for value in group.values}
            if len(groups) == 1 and (one := groups.pop()):
                found[id(group)] = one
    return found


def _candidates(
    places: Sequence[Group], alike: dict[Value, Groups]
) -> list[tuple[Groups, list[Group]]]:
    """Places that may be shared, by groups; first those that save most where a node holds all members."""
    may_share = _shareable(places, alike)
    found: dict[Groups, list[Group]] = {}
    for group in places:
        if id(group) in may_share:
            found.setdefault(may_share[id(group)], []).append(group)

    def saved(entry: tuple[Groups, list[Group]]) -> float:
        groups, shared = entry
        return lower_bound(intervals(shared)) * (1 - 1 / len(groups[0]))

    return sorted(found.items(), key=lambda entry: (-saved(entry), entry[0]))


def _divide(
    own: list[Group], candidates: list[Group], room: int
) -> tuple[tuple[Group, ...], Packing, Packing] | None:
    """Candidates to be moved to a heap of theirs, that heap, and the heap that is left; None where none should be.

    Both heaps together take no more than ``room`` and _GROWTH. The limit of the first starts where no heap can be
    larger, and falls by what both were too large.
    """
    limit = int((room - lower_bound(intervals(without(own, candidates)))) * (1 + _GROWTH))
    for _ in range(_TRIES):
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
    """As many of the candidates as ``limit`` bytes hold, the largest first."""
    arena = Arena(len(candidates), limit)
    taken, offsets = [], []
    for group in sorted(candidates, key=lambda g: (-g.size, g.start - g.end, g.start)):
        offset = arena.place(Interval(group.start, group.end, group.size))
        if offset is not None:
            taken.append(group)
            offsets.append(offset)
    return tuple(taken), Packing(tuple(offsets), arena.size, "best fit, largest first")
