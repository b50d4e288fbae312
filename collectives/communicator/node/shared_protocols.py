"""Protocols in which a collective's actions run over memory that all members of its group reach.

Two protocols. *Through slots*, for small operands: each member copies its operands to a slot of its own and signals;
when all have, it reads everyone's slot. One barrier, and no member accesses another's buffers. Slots take turns: who
writes a slot for run r+2 has seen every reader's signal of run r+1, which came after its reading in run r.

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
the memory held. Through slots everyone writes all of it, the same bits: the one barrier has shown that all have
started, and whoever is late with that has not yet come to the next collective there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from collectives.communicator.actions.shared_actions import (
    Await,
    CollectiveAction,
    CollectiveProgram,
    Ends,
    Signal,
    copies,
    join_copies,
)
from collectives.communicator.actions.shared_buffers import Addresses, Buffers, starts_at
from collectives.communicator.kinds.op import Collective
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class MemberMemory:
    """One member's memory as this process sees it. ``slots``: two, each for all its operands; empty where unused.

    ``results``: 0 for an array that no other member writes, through slots.
    """

    counter: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    slots: tuple[int, ...] = ()


def action_program(
    collective: Collective,
    index: int,
    buffers: Buffers,
    members: Sequence[MemberMemory],
    staging: Addresses | None = None,
) -> CollectiveProgram:
    """Return the actions of member ``index``: through slots if members have some, otherwise in place.

    ``staging``: this process's own memory for each result, where ``needs_staging``.
    """
    if len(members) == 1:
        actions = tuple(_alone(collective, buffers, members[0], staging))
        return CollectiveProgram(actions, actions, 0)
    if members[0].slots:
        turns = [tuple(_through_slots(collective, index, buffers, members, t)) for t in (0, 1)]
        return CollectiveProgram(turns[0], turns[1], signals=1)
    actions = tuple(_in_place(collective, index, buffers, members, staging))
    return CollectiveProgram(actions, actions, signals=2)


def needs_staging(collective: Collective, index: int, buffers: Buffers) -> bool:
    """Return whether a result lies on an operand that is still read when member ``index`` writes it in place."""
    if collective.overwrites_operands(buffers):
        return False
    own = [(k, k) for k in own_tiles(collective, index, buffers)]
    unread = {*collective.unread_overlaps(), *own}
    return any((i, k) not in unread for i, k, _ in buffers.overlaps)


def own_tiles(collective: Collective, index: int, buffers: Buffers) -> list[int]:
    """Return the numbers of the arrays of which member ``index`` has its own tile at its place in the whole.

    An all-gather's operand lies so in its result; a reduce-scatter's result takes the place of the part that no other
    member reads.
    """
    found = []
    for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=False)):
        own = collective.own_tile(operand, result)
        if own is not None:
            tile, full, dimension = own
            is_one_run = math.prod(tile.shape[:dimension]) == 1
            if is_one_run and starts_at(tile) == starts_at(full) + index * tile.nbytes:
                found.append(k)
    return found


# ---- protocols
def _alone(
    collective: Collective, buffers: Buffers, own: MemberMemory, staging: Addresses | None
) -> Iterator[CollectiveAction]:
    yield from collective.shared_transfer(Ends(0, buffers, [own.operands], staging or own.results))
    if staging is not None:
        yield from copies(staging, own.results, buffers.results)


def _through_slots(
    collective: Collective,
    index: int,
    buffers: Buffers,
    members: Sequence[MemberMemory],
    turn: int,
) -> Iterator[CollectiveAction]:
    operands = [
        [member.slots[turn] + offset for offset in buffers.operand_offsets] for member in members
    ]
    own = members[index]
    peers = sorted({*collective.sources(index), *collective.readers(index)})
    if _share_results(index, members):
        peers = [i for i in range(len(members)) if i != index]
    yield from copies(own.operands, operands[index], buffers.operands)
    yield Signal(own.counter, 1)
    yield from _await(collective, members, peers, 1)
    yield from join_copies(collective.shared_transfer(Ends(index, buffers, operands, own.results)))


def _in_place(
    collective: Collective,
    index: int,
    buffers: Buffers,
    members: Sequence[MemberMemory],
    staging: Addresses | None,
) -> Iterator[CollectiveAction]:
    own = members[index]
    operands = [member.operands for member in members]
    sources, readers = collective.awaited_in_place(index, buffers)
    if _share_results(index, members):
        sources = readers = [i for i in range(len(members)) if i != index]
    if staging is None:
        results = [member.results for member in members]
        ends = Ends(index, buffers, operands, own.results, _holders(index, members), results)
    else:
        ends = Ends(index, buffers, operands, staging)
    yield Signal(own.counter, 1)
    yield from _await(collective, members, sources, 1)
    yield from collective.shared_transfer(ends)
    yield Signal(own.counter, 2)
    yield from _await(collective, members, readers, 2)
    if staging is not None:
        yield from copies(staging, own.results, buffers.results)


def _await(
    collective: Collective, members: Sequence[MemberMemory], peers: Sequence[int], number: int
) -> Iterator[CollectiveAction]:
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


def _share_results(index: int, members: Sequence[MemberMemory]) -> bool:
    return any(len(sharers) > 1 for sharers in _holders(index, members))
