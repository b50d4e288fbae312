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

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
from collectives.communicator.reduction import Array
from collectives.communicator.shared_steps import (
    Await,
    CopyRows,
    FillZero,
    MoveRows,
    ReduceRows,
    Signal,
    Step,
    StepProgram,
)
from spmd.device import ReductionKind
from spmd.registry import Registry

Addresses: TypeAlias = Sequence[int]


@dataclass(frozen=True)
class Buffers:
    """This rank's arrays; members of a group have arrays of equal shapes and types."""

    operands: tuple[Array, ...]
    results: tuple[Array, ...]

    @property
    def operand_bytes(self) -> int:
        return sum(aligned(operand.nbytes) for operand in self.operands)

    @property
    def operand_offsets(self) -> list[int]:
        """Where each operand lies in a slot."""
        sizes = [aligned(operand.nbytes) for operand in self.operands]
        return [0, *itertools.accumulate(sizes)][: len(sizes)]


@dataclass(frozen=True)
class MemberMemory:
    """One member's memory as this process sees it. ``slots``: two, each for all its operands; empty where unused."""

    counter: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    slots: tuple[int, ...] = ()


def aligned(num_bytes: int) -> int:
    return -(-num_bytes // MEMORY_ALIGNMENT) * MEMORY_ALIGNMENT


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
    return any(_overlap(operand, result) for operand in read for result in buffers.results)


def can_run_in_place(collective: Collective, buffers: Buffers) -> bool:
    """Whether in-place steps give the right results: an all-reduce's result is its own operand or no operand."""
    if not isinstance(collective, AllReduce):
        return True
    return not any(
        _overlap(operand, result) and not (i == k and _starts_at(operand) == _starts_at(result))
        for i, operand in enumerate(buffers.operands)
        for k, result in enumerate(buffers.results)
    )


# ---- protocols
def _alone(
    collective: Collective, buffers: Buffers, own: MemberMemory, staging: Addresses | None
) -> Iterator[Step]:
    yield from _transfer(collective, 0, buffers, [own.operands], staging or own.results)
    if staging is not None:
        yield from _copies(staging, own.results, buffers.results)


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
    yield from _copies(own.operands, places[index], buffers.operands)
    yield Signal(own.counter, 1)
    peers = sorted({*_sources(collective, index), *_readers(collective, index)})
    yield from _await(collective, members, peers, 1)
    yield from _transfer(collective, index, buffers, places, own.results)


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
    yield from _transfer(collective, index, buffers, places, staging or own.results)
    yield Signal(own.counter, 2)
    yield from _await(collective, members, _readers(collective, index), 2)
    if staging is not None:
        yield from _copies(staging, own.results, buffers.results)


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
        yield from _reduce(
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


# ---- what each kind moves
Transfer: TypeAlias = Callable[[Any, int, Buffers, Sequence[Addresses], Addresses], Iterator[Step]]
"""(collective, own index, arrays, operands' addresses by member, results' addresses) -> steps without meetings."""

TRANSFERS: Registry[type[Collective], Transfer] = Registry("shared-memory transfer")


def _transfer(
    collective: Collective,
    index: int,
    buffers: Buffers,
    places: Sequence[Addresses],
    targets: Addresses,
) -> Iterator[Step]:
    return TRANSFERS[type(collective)](collective, index, buffers, places, targets)


@TRANSFERS.register(AllReduce)
def all_reduce(
    collective: AllReduce,
    _index: int,
    buffers: Buffers,
    places: Sequence[Addresses],
    targets: Addresses,
) -> Iterator[Step]:
    for k, operand in enumerate(buffers.operands):
        sources = [member[k] for member in places]
        size = operand.size
        yield from _reduce(collective.reduction, operand, sources, [targets[k]], 1, size)


@TRANSFERS.register(AllGather)
def all_gather(
    collective: AllGather,
    _index: int,
    buffers: Buffers,
    places: Sequence[Addresses],
    targets: Addresses,
) -> Iterator[Step]:
    count = len(places)
    for k, operand in enumerate(buffers.operands):
        rows, row = _rows(operand, collective.dimension)
        for i, member in enumerate(places):
            yield from _copy(member[k], targets[k] + i * row, rows, row, row, count * row)


@TRANSFERS.register(ReduceScatter)
def reduce_scatter(
    collective: ReduceScatter,
    index: int,
    buffers: Buffers,
    places: Sequence[Addresses],
    targets: Addresses,
) -> Iterator[Step]:
    for k, operand in enumerate(buffers.operands):
        rows, row = _rows(operand, collective.dimension)
        part = row // len(places)
        sources = [member[k] + index * part for member in places]
        elements = part // operand.itemsize
        yield from _reduce(
            collective.reduction, operand, sources, [targets[k]], rows, elements, row, part
        )


@TRANSFERS.register(AllToAll)
def all_to_all(
    collective: AllToAll,
    index: int,
    buffers: Buffers,
    places: Sequence[Addresses],
    targets: Addresses,
) -> Iterator[Step]:
    if collective.dimension is None:
        for member, target, result in zip(places, targets, buffers.results, strict=True):
            yield from _copy(member[index], target, 1, result.nbytes)
        return
    for k, operand in enumerate(buffers.operands):
        rows, row = _rows(operand, collective.dimension)
        part = row // len(places)
        for i, member in enumerate(places):
            yield from _copy(member[k] + index * part, targets[k] + i * part, rows, part, row, row)


@TRANSFERS.register(CollectivePermute)
def collective_permute(
    collective: CollectivePermute,
    index: int,
    buffers: Buffers,
    places: Sequence[Addresses],
    targets: Addresses,
) -> Iterator[Step]:
    source = collective.source_of(collective.group[index])
    for k, result in enumerate(buffers.results):
        if source is not None:
            yield from _copy(
                places[collective.group.index(source)][k], targets[k], 1, result.nbytes
            )
        elif result.nbytes:
            yield FillZero(targets[k], result.nbytes)


@TRANSFERS.register(CollectiveBroadcast)
def collective_broadcast(
    _collective: CollectiveBroadcast,
    _index: int,
    buffers: Buffers,
    places: Sequence[Addresses],
    targets: Addresses,
) -> Iterator[Step]:
    yield from _copies(places[0], targets, buffers.results)


@TRANSFERS.register(RaggedAllToAll)
def ragged_all_to_all(
    _collective: RaggedAllToAll,
    index: int,
    buffers: Buffers,
    places: Sequence[Addresses],
    targets: Addresses,
) -> Iterator[Step]:
    source, output, table = buffers.operands[:3]
    yield from _copy(places[index][1], targets[0], 1, output.nbytes)
    row_bytes = math.prod(source.shape[1:]) * source.itemsize
    entries = table.size // len(places)
    if not row_bytes or not entries:
        return
    for member in places:
        input_offsets, send_sizes, output_offsets = (
            address + index * entries * table.itemsize for address in member[2:5]
        )
        yield MoveRows(
            member[0],
            targets[0],
            (input_offsets, send_sizes, output_offsets),
            table.dtype,
            entries,
            row_bytes,
            source.shape[0],
            output.shape[0],
        )


def _rows(array: Array, dimension: int) -> tuple[int, int]:
    """How many pieces lie one after the other that each hold all of ``dimension``, and their bytes."""
    return math.prod(array.shape[:dimension]), math.prod(array.shape[dimension:]) * array.itemsize


def _copies(sources: Addresses, targets: Addresses, arrays: Sequence[Array]) -> Iterator[Step]:
    for source, target, array in zip(sources, targets, arrays, strict=True):
        yield from _copy(source, target, 1, array.nbytes)


def _copy(
    source: int,
    target: int,
    rows: int,
    row_bytes: int,
    source_stride: int = 0,
    target_stride: int = 0,
) -> Iterator[Step]:
    """Nothing for nothing, nor for what is there already; rows without gaps in one piece."""
    if rows > 1 and source_stride == target_stride == row_bytes:
        rows, row_bytes = 1, rows * row_bytes
    if rows and row_bytes and source != target:
        yield CopyRows(source, target, rows, row_bytes, source_stride, target_stride)


def _reduce(
    reduction: ReductionKind,
    operand: Array,
    sources: Sequence[int],
    targets: Sequence[int],
    rows: int,
    row_elements: int,
    source_stride: int = 0,
    target_stride: int = 0,
) -> Iterator[Step]:
    row_bytes = row_elements * operand.itemsize
    if len(sources) == 1:
        yield from _copy(sources[0], targets[0], rows, row_bytes, source_stride, target_stride)
    elif rows and row_elements:
        yield ReduceRows(
            reduction,
            operand.dtype,
            tuple(sources),
            tuple(targets),
            rows,
            row_elements,
            source_stride,
            target_stride,
        )


def _overlap(one: Array, other: Array) -> bool:
    """Whether two C-contiguous arrays have bytes in common."""
    return (
        _starts_at(one) < _starts_at(other) + other.nbytes
        and _starts_at(other) < _starts_at(one) + one.nbytes
    )


def _starts_at(array: Array) -> int:
    return int(array.ctypes.data)
