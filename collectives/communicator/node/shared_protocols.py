"""Protocols that run a collective's actions over memory that all members of its group can access.

*Through slots*, for small operands: each member copies its operands to a slot of its own and signals. When all members
have signalled, each reads the slots of the others. The protocol needs one barrier, and no member accesses the buffers
of another. Two slots alternate: a member writes a slot for run r+2 only after it has seen the signals of all readers in
run r+1, which they gave after they had read the slot in run r.

*In place*, for large operands: members wait for each other, read each other's operands directly, and wait for each
other again before any of them continues. The buffers are therefore in use exactly from start to done. In an all-reduce
each member reduces one part of the elements, once, and writes it to the results of all members: the results have
identical bits, and each member does 1/n of the work.

    in place, member 1 of 4:   signal 1 | await all | reduce part 1 of the operands into part 1 of all results |
                               signal 2 | await all

In place, some overlaps of operands and results save copies. If the results of an all-to-all are its operands, pairs of
members swap their blocks. If the results of a permute are its operands, each member of a route (a ring, for example)
moves one part of every member's bytes to the next member. An operand of an all-gather that is the member's own tile of
the result is not copied; a result of a reduce-scatter may be the member's own part of the operand.

*Shared results*, which several members hold in the same memory, are recognized by equal addresses. In place they are
written once: each member of an all-gather writes its own tile. All members wait for each other before any of them
writes, since the others may still read the previous contents. Through slots every member writes the entire result, with
equal bits. This is safe: the barrier has shown that all members have started, and a member that is still writing has
not yet started the next collective on that memory.
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
    """Addresses, in this process, of the memory of one member.

    ``counter`` is the word that counts the member's signals. ``operands`` and ``results`` are the addresses of its
    arrays. ``slots`` are the addresses of two slots, each of which holds all its operands; empty if slots are not used.
    Through slots, the addresses of another member's arrays may be 0, because they are not accessed.
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
    """Return the actions of member ``index``: through slots if the members have slots, otherwise in place.

    ``buffers`` are the member's own arrays, and ``members`` the memory of all members in group order. ``staging`` holds
    the address of private memory for each result; it is required if ``needs_staging`` returns True.
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
    """Return whether a result of member ``index`` overlaps an operand that is still read when it is written."""
    if collective.overwrites_operands(buffers):
        return False
    own = [(k, k) for k in own_tiles(collective, index, buffers)]
    unread = {*collective.unread_overlaps(), *own}
    return any((i, k) not in unread for i, k, _ in buffers.overlaps)


def own_tiles(collective: Collective, index: int, buffers: Buffers) -> list[int]:
    """Return the numbers k for which operand k or result k is the own tile of member ``index`` inside the other one.

    This is the case for an operand of an all-gather that lies at the member's position in the result, and for a result
    of a reduce-scatter that lies at the member's position in the operand, a part that no other member reads.
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
    """Yield the actions of a group of one member."""
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
    """Yield the actions of member ``index`` through slots. ``turn`` selects the slot, 0 or 1."""
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
    """Yield the actions of member ``index`` in place. With ``staging``, results are copied after the last wait."""
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
    """Yield a wait for signal ``number`` of the members ``peers``, if there are any."""
    if peers:
        yield Await(
            tuple(collective.group[i] for i in peers),
            tuple(members[i].counter for i in peers),
            number,
        )


def _holders(index: int, members: Sequence[MemberMemory]) -> list[list[int]]:
    """Return, for each result of member ``index``, the members whose result is the same memory, including ``index``."""
    own = members[index].results
    return [
        [i for i, member in enumerate(members) if member.results[k] == own[k]]
        for k in range(len(own))
    ]


def _share_results(index: int, members: Sequence[MemberMemory]) -> bool:
    """Return whether another member shares a result of member ``index``."""
    return any(len(sharers) > 1 for sharers in _holders(index, members))
