"""Each collective as exchanges of messages between the members of a group; who carries them is no concern here.

An algorithm is a generator of ``Exchange`` values. A carrier posts what an exchange says, and resumes the generator
when all its receives have come and its sends are read; results are complete at the end. Members are named by their
index in the group. An exchange's arrays are C-contiguous, and the generator keeps them alive.

Reductions end with the same bits as ``kinds``: an element is reduced by one member, in group order, and then handed
to all (2 (n-1)/n of the operand's bytes sent, the least possible); small operands are gathered and reduced by everyone.
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


Algorithm: TypeAlias = Callable[[Any, int, Sequence[Array], Sequence[Array]], Iterator[Exchange]]
"""(collective, own index in its group, operands, results) -> exchanges."""

ALGORITHMS: Registry[type[Collective], Algorithm] = Registry("collective algorithm")


def exchanges_of(
    collective: Collective, rank: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Exchange]:
    """The exchanges by which ``rank`` takes part in ``collective``."""
    return ALGORITHMS[type(collective)](collective, collective.group.index(rank), operands, results)


@ALGORITHMS.register(AllReduce)
def all_reduce(
    collective: AllReduce, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Exchange]:
    """Operands of one type travel as one vector."""
    by_type = sorted(range(len(operands)), key=lambda k: operands[k].dtype.name)
    for _, batch in itertools.groupby(by_type, key=lambda k: operands[k].dtype.name):
        members = list(batch)
        vector = _packed([operands[k] for k in members])
        if len(members) == 1:
            total = results[members[0]].reshape(-1)
        else:
            total = np.empty_like(vector)
        yield from _all_reduce_vector(collective, index, vector, total)
        if len(members) > 1:
            _unpack(total, [results[k] for k in members])


def _all_reduce_vector(
    collective: AllReduce, index: int, vector: Array, total: Array
) -> Iterator[Exchange]:
    count = len(collective.group)
    if vector.nbytes * count <= ONE_SHOT_BYTES or count == 1:
        rows = np.empty((count, vector.size), vector.dtype)
        yield from _gather_rows(vector, rows, index)
        reduce_in_order(list(rows), collective.reduction, total)
        return
    bounds = [vector.size * i // count for i in range(count + 1)]
    parts = [vector[low:high] for low, high in itertools.pairwise(bounds)]
    mine = total[bounds[index] : bounds[index + 1]]
    yield from _reduce_parts(collective.reduction, index, parts, mine)
    others = {i: total[bounds[i] : bounds[i + 1]] for i in range(count) if i != index}
    yield Exchange(sends=dict.fromkeys(others, mine), receives=others)


@ALGORITHMS.register(AllGather)
def all_gather(
    collective: AllGather, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Exchange]:
    count = len(collective.group)
    for operand, result in zip(operands, results, strict=True):
        if _is_outermost(operand.shape, collective.dimension):
            yield from _gather_rows(operand.reshape(-1), result.reshape(count, -1), index)
        else:
            rows = np.empty((count, *operand.shape), operand.dtype)
            yield from _gather_rows(operand.reshape(-1), rows.reshape(count, -1), index)
            np.concatenate(rows, axis=collective.dimension, out=result)


@ALGORITHMS.register(ReduceScatter)
def reduce_scatter(
    collective: ReduceScatter, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Exchange]:
    count = len(collective.group)
    for operand, result in zip(operands, results, strict=True):
        parts = _parts(operand, count, collective.dimension)
        yield from _reduce_parts(collective.reduction, index, parts, result)


@ALGORITHMS.register(AllToAll)
def all_to_all(
    collective: AllToAll, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Exchange]:
    count = len(collective.group)
    if collective.dimension is None:
        # One exchange for the whole tuple; a result may share memory with an operand that is still to be sent.
        received = [np.empty_like(result) for result in results]
        yield from _swap(operands, received, index)
        for value, result in zip(received, results, strict=True):
            np.copyto(result, value)
        return
    for operand, result in zip(operands, results, strict=True):
        parts = _parts(operand, count, collective.dimension)
        received = [np.empty(part.shape, part.dtype) for part in parts]
        yield from _swap(parts, received, index)
        np.concatenate(received, axis=collective.dimension, out=result)


@ALGORITHMS.register(CollectivePermute)
def collective_permute(
    collective: CollectivePermute, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Exchange]:
    group, rank = collective.group, collective.group[index]
    source = collective.source_of(rank)
    targets = [group.index(target) for target in collective.targets_of(rank) if target != rank]
    for operand, result in zip(operands, results, strict=True):
        if source is None or source == rank:
            yield Exchange(sends=dict.fromkeys(targets, operand))
            if source is None:
                result.fill(0)
            else:
                np.copyto(result, operand)
        else:
            inbox = np.empty_like(result) if np.may_share_memory(operand, result) else result
            yield Exchange(
                sends=dict.fromkeys(targets, operand), receives={group.index(source): inbox}
            )
            if inbox is not result:
                np.copyto(result, inbox)


@ALGORITHMS.register(CollectiveBroadcast)
def collective_broadcast(
    collective: CollectiveBroadcast, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Exchange]:
    others = range(1, len(collective.group))
    for operand, result in zip(operands, results, strict=True):
        if index == 0:
            yield Exchange(sends=dict.fromkeys(others, operand))
            np.copyto(result, operand)
        else:
            yield Exchange(receives={0: result})


@ALGORITHMS.register(RaggedAllToAll)
def ragged_all_to_all(
    collective: RaggedAllToAll, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[Exchange]:
    """Senders know where rows go, so the tables travel first, then each pair's rows as one message."""
    source, output, input_offsets, send_sizes, output_offsets, _ = operands
    (result,) = results
    count = len(collective.group)
    table = (
        np.stack([input_offsets, send_sizes, output_offsets]).astype(np.int64).reshape(3, count, -1)
    )
    tables = np.empty((count, *table.shape), np.int64)
    yield from _gather_rows(table.reshape(-1), tables.reshape(count, -1), index)

    sends = [
        np.concatenate([source[start : start + rows] for start, rows, _ in table[:, peer].T])
        for peer in range(count)
    ]
    received = [
        np.empty((int(tables[peer, 1, index].sum()), *source.shape[1:]), source.dtype)
        for peer in range(count)
    ]
    yield from _swap(sends, received, index)

    np.copyto(result, output)
    for peer, rows_of_peer in enumerate(received):
        taken = 0
        for _, rows, place in tables[peer, :, index].T:
            result[place : place + rows] = rows_of_peer[taken : taken + rows]
            taken += rows


def _gather_rows(own: Array, rows: Array, index: int) -> Iterator[Exchange]:
    """Row i of ``rows`` becomes member i's ``own``."""
    others = {i: row for i, row in enumerate(rows) if i != index}
    yield Exchange(sends=dict.fromkeys(others, own), receives=others)
    np.copyto(rows[index], own)


def _swap(parts: Sequence[Array], received: Sequence[Array], index: int) -> Iterator[Exchange]:
    """``received[i]`` becomes what member i holds as its part for this member."""
    yield Exchange(
        sends={i: part for i, part in enumerate(parts) if i != index},
        receives={i: inbox for i, inbox in enumerate(received) if i != index},
    )
    np.copyto(received[index], parts[index])


def _reduce_parts(
    reduction: ReductionKind, index: int, parts: Sequence[Array], result: Array
) -> Iterator[Exchange]:
    """``result`` becomes the reduction of what every member holds as its part for this member."""
    received = [np.empty(result.shape, result.dtype) for _ in parts]
    yield from _swap(parts, received, index)
    reduce_in_order(received, reduction, result)


def _parts(operand: Array, count: int, dimension: int) -> list[Array]:
    """``operand`` cut into ``count`` contiguous parts along ``dimension``; views where memory allows."""
    return [np.ascontiguousarray(part) for part in np.split(operand, count, axis=dimension)]


def _is_outermost(shape: tuple[int, ...], dimension: int) -> bool:
    """Whether concatenation along ``dimension`` lays whole operands one after the other."""
    return all(size == 1 for size in shape[:dimension])


def _packed(operands: Sequence[Array]) -> Array:
    if len(operands) == 1:
        return operands[0].reshape(-1)
    return np.concatenate([operand.reshape(-1) for operand in operands])


def _unpack(vector: Array, results: Sequence[Array]) -> None:
    offset = 0
    for result in results:
        np.copyto(result, vector[offset : offset + result.size].reshape(result.shape))
        offset += result.size
