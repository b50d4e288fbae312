"""Each collective as steps over memory that all members of its group reach.

Two protocols. *Through slots*, for small operands: each member copies its operands to a slot of its own and signals;
when all have, it reads everyone's slot. One meeting, and nobody touches another's buffers. Slots take turns: who writes
a slot for run r+2 has seen every reader's signal of run r+1, which came after its reading in run r.

*In place*, for large ones: members meet, read each other's operands where they lie, and meet again before anyone goes
on, so that buffers are in use exactly from start to done. In an all-reduce each member reduces one part of the
elements, once, and writes it to everyone's result: identical bits, and 1/n of the work.

    in place, member 1 of 4:   signal 1 | await all | reduce part 1 of the operands into part 1 of all results |
                               signal 2 | await all
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.communicator.interface import MEMORY_ALIGNMENT
from collectives.communicator.kinds import (
    AllReduce,
    Collective,
    CollectiveBroadcast,
    CollectivePermute,
    RaggedAllToAll,
)
from collectives.communicator.shared_buffers import Addresses, Buffers, overlap, starts_at
from collectives.communicator.shared_steps import Await, Signal, Step, StepProgram
from collectives.communicator.shared_transfers import copies, reduce_rows, transfer


@dataclass(frozen=True)
class MemberMemory:
    """One member's memory as this process sees it. ``slots``: two, each for all its operands; empty where unused."""

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
) -> StepProgram:
    """What member ``index`` does: through slots where members have some, otherwise in place.

    ``staging``: this process's own memory for each result, where ``needs_staging``.
    """
    if len(members) == 1:
        steps = tuple(_alone(collective, buffers, members[0], staging))
        return StepProgram(steps, steps, 0)
    if members[0].slots:
        turns = [tuple(_through_slots(collective, index, buffers, members, t)) for t in (0, 1)]
        return StepProgram(turns[0], turns[1], signals=1)
    if isinstance(collective, AllReduce):
        steps = tuple(_all_reduce_in_place(collective, index, buffers, members))
    else:
        steps = tuple(_in_place(collective, index, buffers, members, staging))
    return StepProgram(steps, steps, signals=2)


def needs_staging(collective: Collective, buffers: Buffers) -> bool:
    """Whether a result lies on an operand that is still read when the result is written in place."""
    read = buffers.operands
    if isinstance(collective, RaggedAllToAll):
        read = (read[0], *read[2:])  # nobody else reads the output that the result begins as
    return any(overlap(operand, result) for operand in read for result in buffers.results)


def can_run_in_place(collective: Collective, buffers: Buffers) -> bool:
    """Whether in-place steps give the right results: an all-reduce's result is its own operand or no operand."""
    if not isinstance(collective, AllReduce):
        return True
    return not any(
        overlap(operand, result) and not (i == k and starts_at(operand) == starts_at(result))
        for i, operand in enumerate(buffers.operands)
        for k, result in enumerate(buffers.results)
    )


# ---- protocols
def _alone(
    collective: Collective, buffers: Buffers, own: MemberMemory, staging: Addresses | None
) -> Iterator[Step]:
    yield from transfer(collective, 0, buffers, [own.operands], staging or own.results)
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
    yield from copies(own.operands, places[index], buffers.operands)
    yield Signal(own.counter, 1)
    peers = sorted({*_sources(collective, index), *_readers(collective, index)})
    yield from _await(collective, members, peers, 1)
    yield from transfer(collective, index, buffers, places, own.results)


def _in_place(
    collective: Collective,
    index: int,
    buffers: Buffers,
    members: Sequence[MemberMemory],
    staging: Addresses | None,
) -> Iterator[Step]:
    own = members[index]
    places = [member.operands for member in members]
    yield Signal(own.counter, 1)
    yield from _await(collective, members, _sources(collective, index), 1)
    yield from transfer(collective, index, buffers, places, staging or own.results)
    yield Signal(own.counter, 2)
    yield from _await(collective, members, _readers(collective, index), 2)
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
        line = max(MEMORY_ALIGNMENT // operand.itemsize, 1)  # members do not share cache lines
        part = -(-operand.size // (count * line)) * line
        first, end = min(index * part, operand.size), min((index + 1) * part, operand.size)
        before = first * operand.itemsize
        yield from reduce_rows(
            collective.reduction,
            operand,
            [member.operands[k] + before for member in members],
            [m.results[k] + before for m in (own, *(members[i] for i in others))],
            rows=1,
            row_elements=end - first,
        )
    yield Signal(own.counter, 2)
    yield from _await(collective, members, others, 2)


def _await(
    collective: Collective, members: Sequence[MemberMemory], peers: Sequence[int], number: int
) -> Iterator[Step]:
    if peers:
        yield Await(
            tuple(collective.group[i] for i in peers),
            tuple(members[i].counter for i in peers),
            number,
        )


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
