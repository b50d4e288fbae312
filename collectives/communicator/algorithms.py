"""Each collective as exchanges of messages between the members of a group; who carries them is no concern here.

An algorithm is planned once, for buffers that stay, and run any number of times: a list of steps, each of which does
some work of its own or says what to exchange. A carrier posts an exchange and goes on to the next step when all its
receives have come and its sends are read; results are complete at the end. Members are named by their index in the
group. An exchange's arrays are C-contiguous, and the steps keep them alive.

Reductions end with the same bits as ``kinds``: an element is reduced by one member, in group order, and then handed
to all (2 (n-1)/n of the operand's bytes sent, the least possible); small operands are gathered and reduced by everyone.
Where members share nodes, ``hierarchical`` sends less between these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

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
from collectives.communicator.reduction import Array, reduce_in_order
from spmd.device import ReductionKind
from spmd.registry import Registry

ONE_SHOT_BYTES = 8192
"""Up to this many gathered bytes an all-reduce takes one exchange instead of two: latency outweighs bandwidth."""


@dataclass(frozen=True)
class Exchange:
    """Messages to and from members of the group, by index; at most one each way and never to oneself."""

    sends: dict[int, Array] = field(default_factory=dict)
    receives: dict[int, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Meeting:
    """The members on one node come together, in a group that spans nodes (``hierarchical``); numbered within a run."""

    number: int


Step: TypeAlias = Callable[[], Exchange | Meeting | None]
"""Work of its own, done when it is called; an exchange it gives is carried, a meeting held, before the next step."""

Algorithm: TypeAlias = Callable[[Any, int, Sequence[Array], Sequence[Array]], Iterator[Step]]
"""(collective, own index in its group, operands, results) -> steps, on these very arrays."""

ALGORITHMS: Registry[type[Collective], Algorithm] = Registry("collective algorithm")


def message_steps(
    collective: Collective, rank: int, operands: Sequence[Array], results: Sequence[Array]
) -> tuple[Step, ...]:
    """How ``rank`` takes part in ``collective``."""
    index = collective.group.index(rank)
    return tuple(ALGORITHMS[type(collective)](collective, index, operands, results))


def exchanges_of(steps: Sequence[Step]) -> Iterator[Exchange | Meeting]:
    """One run: each exchange and each meeting when it is due."""
    for step in steps:
        due = step()
        if due is not None:
            yield due


@ALGORITHMS.register(AllReduce)
def all_reduce(
    collective: AllReduce, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Step]:
    """Operands of one type travel as one vector."""
    by_type = sorted(range(len(operands)), key=lambda k: operands[k].dtype.name)
    for _, batch in itertools.groupby(by_type, key=lambda k: operands[k].dtype.name):
        members = list(batch)
        if len(members) == 1:
            vector, total = (arrays[members[0]].reshape(-1) for arrays in (operands, results))
            yield from _all_reduce_vector(collective, index, vector, total)
            continue
        parts = [operands[k].reshape(-1) for k in members]
        vector = np.empty(sum(part.size for part in parts), parts[0].dtype)
        total = np.empty_like(vector)
        yield do(np.concatenate, parts, out=vector)
        yield from _all_reduce_vector(collective, index, vector, total)
        ends = np.cumsum([part.size for part in parts])
        for k, end in zip(members, ends, strict=True):
            result = results[k]
            yield copy(total[end - result.size : end].reshape(result.shape), result)


def _all_reduce_vector(
    collective: AllReduce, index: int, vector: Array, total: Array
) -> Iterator[Step]:
    count = len(collective.group)
    if vector.nbytes * count <= ONE_SHOT_BYTES or count == 1:
        rows = np.empty((count, vector.size), vector.dtype)
        yield from _gather_rows(vector, rows, index)
        yield do(reduce_in_order, list(rows), collective.reduction, total)
        return
    bounds = [vector.size * i // count for i in range(count + 1)]
    parts = [vector[low:high] for low, high in itertools.pairwise(bounds)]
    mine = total[bounds[index] : bounds[index + 1]]
    yield from reduce_parts(collective.reduction, index, parts, mine)
    others = {i: total[bounds[i] : bounds[i + 1]] for i in range(count) if i != index}
    yield exchange(sends=dict.fromkeys(others, mine), receives=others)


@ALGORITHMS.register(AllGather)
def all_gather(
    collective: AllGather, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Step]:
    count = len(collective.group)
    for operand, result in zip(operands, results, strict=True):
        if _is_outermost(operand.shape, collective.dimension):
            yield from _gather_rows(operand.reshape(-1), result.reshape(count, -1), index)
        else:
            rows = np.empty((count, *operand.shape), operand.dtype)
            yield from _gather_rows(operand.reshape(-1), rows.reshape(count, -1), index)
            yield do(np.concatenate, list(rows), axis=collective.dimension, out=result)


@ALGORITHMS.register(ReduceScatter)
def reduce_scatter(
    collective: ReduceScatter, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Step]:
    count = len(collective.group)
    for operand, result in zip(operands, results, strict=True):
        parts, copies = _parts(operand, count, collective.dimension)
        yield from copies
        yield from reduce_parts(collective.reduction, index, parts, result)


@ALGORITHMS.register(AllToAll)
def all_to_all(
    collective: AllToAll, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Step]:
    count = len(collective.group)
    if collective.dimension is None:
        # One exchange for the whole tuple; a result may share memory with an operand that is still to be sent.
        received = [np.empty_like(result) for result in results]
        yield from _swap(operands, received, index)
        for value, result in zip(received, results, strict=True):
            yield copy(value, result)
        return
    for operand, result in zip(operands, results, strict=True):
        parts, copies = _parts(operand, count, collective.dimension)
        yield from copies
        received = [np.empty(part.shape, part.dtype) for part in parts]
        yield from _swap(parts, received, index)
        yield do(np.concatenate, received, axis=collective.joined, out=result)


@ALGORITHMS.register(CollectivePermute)
def collective_permute(
    collective: CollectivePermute, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Step]:
    group, rank = collective.group, collective.group[index]
    source = collective.source_of(rank)
    targets = [group.index(target) for target in collective.targets_of(rank) if target != rank]
    for operand, result in zip(operands, results, strict=True):
        sends = dict.fromkeys(targets, operand)
        if source is None:
            yield exchange(sends)
            yield do(result.fill, 0)
        elif source == rank:
            yield exchange(sends)
            yield copy(operand, result)
        elif np.may_share_memory(operand, result):
            inbox = np.empty_like(result)
            yield exchange(sends, {group.index(source): inbox})
            yield copy(inbox, result)
        else:
            yield exchange(sends, {group.index(source): result})


@ALGORITHMS.register(CollectiveBroadcast)
def collective_broadcast(
    collective: CollectiveBroadcast, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Step]:
    others = range(1, len(collective.group))
    for operand, result in zip(operands, results, strict=True):
        if index == 0:
            yield exchange(sends=dict.fromkeys(others, operand))
            yield copy(operand, result)
        else:
            yield exchange(receives={0: result})


@ALGORITHMS.register(RaggedAllToAll)
def ragged_all_to_all(
    collective: RaggedAllToAll, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Step]:
    """Senders know where rows go, so the tables travel first, then each pair's rows as one message."""
    source, output, input_offsets, send_sizes, output_offsets, _ = operands
    (result,) = results
    count = len(collective.group)
    own = np.empty((3, count, input_offsets.size // count), np.int64)
    tables = np.empty((count, *own.shape), np.int64)
    for row, table in zip(own, (input_offsets, send_sizes, output_offsets), strict=True):
        yield copy(table.reshape(row.shape), row)
    yield from _gather_rows(own.reshape(-1), tables.reshape(count, -1), index)
    received: list[Array] = []

    def exchange_rows() -> Exchange:
        sends = [
            np.concatenate([source[start : start + rows] for start, rows, _ in own[:, peer].T])
            for peer in range(count)
        ]
        received[:] = [
            np.empty((int(tables[peer, 1, index].sum()), *source.shape[1:]), source.dtype)
            for peer in range(count)
        ]
        np.copyto(received[index], sends[index])
        return _between_others(sends, received, index)

    def lay_rows() -> None:
        np.copyto(result, output)
        for peer, rows_of_peer in enumerate(received):
            taken = 0
            for _, rows, place in tables[peer, :, index].T:
                result[place : place + rows] = rows_of_peer[taken : taken + rows]
                taken += rows

    yield exchange_rows
    yield lay_rows


def do(function: Callable[..., object], *arguments: object, **options: object) -> Step:
    """Local work."""

    def step() -> None:
        function(*arguments, **options)

    return step


def copy(source: Array, target: Array) -> Step:
    return do(np.copyto, target, source)


def exchange(
    sends: dict[int, Array] | None = None, receives: dict[int, Array] | None = None
) -> Step:
    due = Exchange(sends or {}, receives or {})
    return lambda: due


def _between_others(parts: Sequence[Array], received: Sequence[Array], index: int) -> Exchange:
    return Exchange(
        sends={i: part for i, part in enumerate(parts) if i != index},
        receives={i: inbox for i, inbox in enumerate(received) if i != index},
    )


def _gather_rows(own: Array, rows: Array, index: int) -> Iterator[Step]:
    """Row i of ``rows`` becomes member i's ``own``."""
    others = {i: row for i, row in enumerate(rows) if i != index}
    yield exchange(sends=dict.fromkeys(others, own), receives=others)
    yield copy(own, rows[index])


def _swap(parts: Sequence[Array], received: Sequence[Array], index: int) -> Iterator[Step]:
    """``received[i]`` becomes what member i holds as its part for this member."""
    due = _between_others(parts, received, index)
    yield lambda: due
    yield copy(parts[index], received[index])


def reduce_parts(
    reduction: ReductionKind, index: int, parts: Sequence[Array], result: Array
) -> Iterator[Step]:
    """``result`` becomes the reduction of what every member holds as its part for this member."""
    received = [np.empty(result.shape, result.dtype) for _ in parts]
    yield from _swap(parts, received, index)
    yield do(reduce_in_order, received, reduction, result)


def _parts(operand: Array, count: int, dimension: int) -> tuple[list[Array], list[Step]]:
    """``count`` contiguous parts of ``operand`` along ``dimension``; what fills those that are no views of it."""
    parts: list[Array] = []
    copies: list[Step] = []
    for view in np.split(operand, count, axis=dimension):
        parts.append(view if view.flags.c_contiguous else np.empty(view.shape, view.dtype))
        if parts[-1] is not view:
            copies.append(copy(view, parts[-1]))
    return parts, copies


def _is_outermost(shape: tuple[int, ...], dimension: int) -> bool:
    """Whether concatenation along ``dimension`` lays whole operands one after the other."""
    return all(size == 1 for size in shape[:dimension])
