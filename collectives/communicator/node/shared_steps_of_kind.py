"""Each collective as steps over memory that all members of its group reach.

Two protocols. *Through slots*, for small operands: each member copies its operands to a slot of its own and signals;
when all have, it reads everyone's slot. One meeting, and nobody touches another's buffers. Slots take turns: who writes
a slot for run r+2 has seen every reader's signal of run r+1, which came after its reading in run r.

*In place*, for large ones: members meet, read each other's operands where they lie, and meet again before anyone goes
on, so that buffers are in use exactly from start to done. In an all-reduce each member reduces one part of the
elements, once, and writes it to everyone's result: identical bits, and 1/n of the work.

    in place, member 1 of 4:   signal 1 | await all | reduce part 1 of the operands into part 1 of all results |
                               signal 2 | await all

Less moves in place where arrays lie well. In an all-to-all whose results are its operands members swap what they have
for each other: no copies elsewhere. In such a permute each member of a route (a ring, say) moves one part of everyone's
bytes one place on. An operand of an all-gather that lies in the result, as the member's own tile, stays there;
a reduce-scatter's result may take the place of the operand's own part.
*Results that members hold together*, in the very same memory, are written once: each member of an all-gather brings
its own tile. Their addresses tell. All members meet before anyone writes there, since the others may still read what
the memory held. Through slots everyone writes all of it, the same bits: the one meeting has shown that all have
started, and whoever is late with that has not yet come to the next collective there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.communicator.interface import MEMORY_ALIGNMENT
from collectives.communicator.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CollectiveBroadcast,
    CollectivePermute,
    RaggedAllToAll,
    ReduceScatter,
)
from collectives.communicator.messages.permute_routes import has_routes, route_through
from collectives.communicator.node.shared_buffers import Addresses, Buffers, overlap, starts_at
from collectives.communicator.node.shared_steps import (
    Await,
    CollectiveProgram,
    RotateBytes,
    Signal,
    Step,
)
from collectives.communicator.node.shared_transfers import Ends, copies, reduce_rows, transfer


@dataclass(frozen=True)
class MemberMemory:
    """One member's memory as this process sees it. ``slots``: two, each for all its operands; empty where unused.

    ``results``: 0 for an array that nobody else writes, through slots.
    """

    counter: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    slots: tuple[int, ...] = ()


def step_program(
    collective: Collective,
    index: int,
    buffers: Buffers,
    members: Sequence[MemberMemory],
    staging: Addresses | None = None,
) -> CollectiveProgram:
    """Return the steps of member ``index``: through slots if members have some, otherwise in place.

    ``staging``: this process's own memory for each result, where ``needs_staging``.
    """
    if len(members) == 1:
        steps = tuple(_alone(collective, buffers, members[0], staging))
        return CollectiveProgram(steps, steps, 0)
    if members[0].slots:
        turns = [tuple(_through_slots(collective, index, buffers, members, t)) for t in (0, 1)]
        return CollectiveProgram(turns[0], turns[1], signals=1)
    if isinstance(collective, AllReduce):
        steps = tuple(_all_reduce_in_place(collective, index, buffers, members))
    elif isinstance(collective, CollectivePermute) and _rotates(collective, buffers):
        steps = tuple(_permute_over_operands(collective, index, buffers, members))
    else:
        steps = tuple(_in_place(collective, index, buffers, members, staging))
    return CollectiveProgram(steps, steps, signals=2)


def needs_staging(collective: Collective, index: int, buffers: Buffers) -> bool:
    """Whether a result lies on an operand that is still read when member ``index`` writes the result in place."""
    if isinstance(collective, AllToAll) and collective.joined == collective.dimension:
        if _are_operands(buffers):
            return False
    if isinstance(collective, CollectivePermute) and _rotates(collective, buffers):
        return False
    skipped: list[tuple[int, int]] = []
    if isinstance(collective, RaggedAllToAll):
        skipped = [(1, 0)]  # nobody else reads the output that the result begins as
    skipped += [(k, k) for k in own_tiles(collective, index, buffers)]
    return any(
        overlap(operand, result)
        for i, operand in enumerate(buffers.operands)
        for k, result in enumerate(buffers.results)
        if (i, k) not in skipped
    )


def own_tiles(collective: Collective, index: int, buffers: Buffers) -> list[int]:
    """Return the tiles that lie at their positions in the whole: an all-gather's operands in its results, or the
    converse.

    A reduce-scatter's result there takes the place of the part that nobody but member ``index`` reads.
    """
    if isinstance(collective, AllGather):
        tiles, wholes = buffers.operands, buffers.results
    elif isinstance(collective, ReduceScatter):
        tiles, wholes = buffers.results, buffers.operands
    else:
        return []
    return [
        k
        for k, (tile, whole) in enumerate(zip(tiles, wholes, strict=True))
        if math.prod(tile.shape[: collective.dimension]) == 1
        and starts_at(tile) == starts_at(whole) + index * tile.nbytes
    ]


def can_run_in_place(collective: Collective, buffers: Buffers) -> bool:
    """Whether in-place steps give the right results: an all-reduce's result is its own operand or no operand."""
    if not isinstance(collective, AllReduce):
        return True
    return not any(
        overlap(operand, result) and not (i == k and starts_at(operand) == starts_at(result))
        for i, operand in enumerate(buffers.operands)
        for k, result in enumerate(buffers.results)
    )


def can_be_held_together(collective: Collective) -> bool:
    """Whether members may have their results in the same memory, since all receive the same."""
    return isinstance(collective, (AllReduce, AllGather, CollectiveBroadcast))


def _rotates(collective: CollectivePermute, buffers: Buffers) -> bool:
    return _are_operands(buffers) and has_routes(collective)


def _are_operands(buffers: Buffers) -> bool:
    """Whether each result is its operand's very memory, and no other's."""
    pairs = zip(buffers.operands, buffers.results, strict=True)
    each_is = all(starts_at(operand) == starts_at(result) for operand, result in pairs)
    return each_is and not any(
        itertools.starmap(overlap, itertools.combinations(buffers.results, 2))
    )


# ---- protocols
def _alone(
    collective: Collective, buffers: Buffers, own: MemberMemory, staging: Addresses | None
) -> Iterator[Step]:
    yield from transfer(collective, Ends(0, buffers, [own.operands], staging or own.results))
    if staging is not None:
        yield from copies(staging, own.results, buffers.results)


def _through_slots(
    collective: Collective,
    index: int,
    buffers: Buffers,
    members: Sequence[MemberMemory],
    turn: int,
) -> Iterator[Step]:
    places = [
        [member.slots[turn] + offset for offset in buffers.operand_offsets] for member in members
    ]
    own = members[index]
    peers = sorted({*_sources(collective, index), *_readers(collective, index)})
    if _hold_results_together(index, members):
        peers = [i for i in range(len(members)) if i != index]
    yield from copies(own.operands, places[index], buffers.operands)
    yield Signal(own.counter, 1)
    yield from _await(collective, members, peers, 1)
    yield from transfer(collective, Ends(index, buffers, places, own.results))


def _in_place(
    collective: Collective,
    index: int,
    buffers: Buffers,
    members: Sequence[MemberMemory],
    staging: Addresses | None,
) -> Iterator[Step]:
    own = members[index]
    places = [member.operands for member in members]
    sources, readers = _sources(collective, index), _readers(collective, index)
    if _hold_results_together(index, members):
        sources = readers = [i for i in range(len(members)) if i != index]
    ends = Ends(index, buffers, places, own.results, _holders(index, members))
    if staging is not None:
        ends = Ends(index, buffers, places, staging)
    yield Signal(own.counter, 1)
    yield from _await(collective, members, sources, 1)
    yield from transfer(collective, ends)
    yield Signal(own.counter, 2)
    yield from _await(collective, members, readers, 2)
    if staging is not None:
        yield from copies(staging, own.results, buffers.results)


def _all_reduce_in_place(
    collective: AllReduce, index: int, buffers: Buffers, members: Sequence[MemberMemory]
) -> Iterator[Step]:
    own, count = members[index], len(members)
    others = [i for i in range(count) if i != index]
    yield Signal(own.counter, 1)
    yield from _await(collective, members, others, 1)
    for k, operand in enumerate(buffers.operands):
        first, end = _part(operand.size, operand.itemsize, index, count)
        before = first * operand.itemsize
        targets = [m.results[k] + before for m in (own, *(members[i] for i in others))]
        yield from reduce_rows(
            collective.reduction,
            operand,
            [member.operands[k] + before for member in members],
            list(dict.fromkeys(targets)),  # one for all who hold it together
            rows=1,
            row_elements=end - first,
        )
    yield Signal(own.counter, 2)
    yield from _await(collective, members, others, 2)


def _permute_over_operands(
    collective: CollectivePermute, index: int, buffers: Buffers, members: Sequence[MemberMemory]
) -> Iterator[Step]:
    own, route = members[index], route_through(collective, collective.group[index])
    places = [collective.group.index(rank) for rank in route.ranks]
    others = [i for i in places if i != index]
    yield Signal(own.counter, 1)
    yield from _await(collective, members, others, 1)
    for k, result in enumerate(buffers.results):
        first, end = _part(result.nbytes, 1, places.index(index), len(places))
        if first < end and others:
            here = tuple(members[i].results[k] + first for i in places)
            yield RotateBytes(here, end - first, route.is_cycle)
    yield Signal(own.counter, 2)
    yield from _await(collective, members, others, 2)


def _part(size: int, item_bytes: int, index: int, count: int) -> tuple[int, int]:
    """First and end of the items that member ``index`` of ``count`` works on; members do not share cache lines."""
    line = max(MEMORY_ALIGNMENT // item_bytes, 1)
    part = -(-size // (count * line)) * line
    return min(index * part, size), min((index + 1) * part, size)


def _await(
    collective: Collective, members: Sequence[MemberMemory], peers: Sequence[int], number: int
) -> Iterator[Step]:
    if peers:
        yield Await(
            tuple(collective.group[i] for i in peers),
            tuple(members[i].counter for i in peers),
            number,
        )


def _holders(index: int, members: Sequence[MemberMemory]) -> list[list[int]]:
    """Return for each result of ``index`` the members that have it in the same memory, itself included."""
    own = members[index].results
    return [
        [i for i, member in enumerate(members) if member.results[k] == own[k]]
        for k in range(len(own))
    ]


def _hold_results_together(index: int, members: Sequence[MemberMemory]) -> bool:
    return any(len(together) > 1 for together in _holders(index, members))


def _sources(collective: Collective, index: int) -> list[int]:
    """Members whose operands ``index`` reads, itself not counted."""
    return [i for i in range(len(collective.group)) if i != index and _reads(collective, index, i)]


def _readers(collective: Collective, index: int) -> list[int]:
    """Members that read the operands of ``index``, itself not counted."""
    return [i for i in range(len(collective.group)) if i != index and _reads(collective, i, index)]


def _reads(collective: Collective, reader: int, source: int) -> bool:
    if isinstance(collective, CollectiveBroadcast):
        return source == 0
    if isinstance(collective, CollectivePermute):
        return collective.source_of(collective.group[reader]) == collective.group[source]
    return True
