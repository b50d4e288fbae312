"""Each collective as exchanges of messages between the members of a group, as steps on arrays (``array_steps``).

A plan is made once, for buffers that stay, and run any number of times. What goes to one member goes in one exchange,
however many operands there are: a round costs more than a message.

Reductions end with the same bits as ``kinds``: an element is reduced by one member, in group order, and then handed
to all (2 (n-1)/n of the operand's bytes sent, the least possible); small operands are gathered and reduced by everyone.
Where members share nodes, ``hierarchical`` sends less between these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
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
from collectives.communicator.messages.array_steps import (
    ArrayStep,
    Copy,
    Deferred,
    Exchange,
    Zero,
    concatenate,
    separate,
)
from collectives.communicator.messages.packed_messages import PackedMessages
from collectives.communicator.reduction import Array
from spmd.errors import RunError
from spmd.registry import Registry

ONE_SHOT_BYTES = 8192
"""Up to this many gathered bytes an all-reduce takes one exchange instead of two: latency outweighs bandwidth."""

Algorithm: TypeAlias = Callable[[Any, int, Sequence[Array], Sequence[Array]], Iterator[ArrayStep]]
"""(collective, own index in its group, operands, results) -> steps, on these very arrays."""

ALGORITHMS: Registry[type[Collective], Algorithm] = Registry("collective algorithm")


def message_steps(
    collective: Collective, rank: int, operands: Sequence[Array], results: Sequence[Array]
) -> tuple[ArrayStep, ...]:
    """Return the steps of ``rank`` in ``collective``."""
    index = collective.group.index(rank)
    return tuple(ALGORITHMS[type(collective)](collective, index, operands, results))


@ALGORITHMS.register(AllReduce)
def all_reduce(
    collective: AllReduce, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[ArrayStep]:
    """Operands of one type travel as one vector: in one exchange where all are small, else in two."""
    count = len(collective.group)
    vectors, packing, unpacking = _vectors(operands, results)
    yield from packing
    meeting = PackedMessages(index, count)
    handing = PackedMessages(index, count)
    reductions: list[ArrayStep] = []
    for vector, total in vectors:
        if vector.nbytes * count <= ONE_SHOT_BYTES or count == 1:
            reductions += meeting.reduce(collective.reduction, [vector] * count, total, results)
            continue
        bounds = [vector.size * i // count for i in range(count + 1)]
        parts, totals = (
            [one[low:high] for low, high in itertools.pairwise(bounds)] for one in (vector, total)
        )
        reductions += meeting.reduce(collective.reduction, parts, totals[index], results)
        handing.swap([totals[index]] * count, totals)
    yield from meeting.exchange()
    yield from reductions
    yield from handing.exchange()
    yield from unpacking


def _vectors(
    operands: Sequence[Array], results: Sequence[Array]
) -> tuple[list[tuple[Array, Array]], list[Copy], list[Copy]]:
    """For each type a vector and what it is to become; copies from the operands, and to the results."""
    by_type = sorted(range(len(operands)), key=lambda k: operands[k].dtype.name)
    vectors: list[tuple[Array, Array]] = []
    packing: list[Copy] = []
    unpacking: list[Copy] = []
    for _, batch in itertools.groupby(by_type, key=lambda k: operands[k].dtype.name):
        parts = [(operands[k].reshape(-1), results[k].reshape(-1)) for k in batch]
        if len(parts) == 1:
            vectors += parts
            continue
        vector = np.empty(sum(part.size for part, _ in parts), parts[0][0].dtype)
        total = np.empty_like(vector)
        vectors.append((vector, total))
        packing += concatenate([part for part, _ in parts], 0, vector)
        unpacking += separate(total, 0, [result for _, result in parts])
    return vectors, packing, unpacking


@ALGORITHMS.register(AllGather)
def all_gather(
    collective: AllGather, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[ArrayStep]:
    parcels = PackedMessages(index, len(collective.group))
    laying: list[ArrayStep] = []
    for operand, result in zip(operands, results, strict=True):
        tiles = np.split(result, parcels.count, axis=collective.dimension)
        laying += parcels.receive([operand] * parcels.count, tiles)
    yield from parcels.exchange()
    yield from laying


@ALGORITHMS.register(ReduceScatter)
def reduce_scatter(
    collective: ReduceScatter, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[ArrayStep]:
    parcels = PackedMessages(index, len(collective.group))
    reductions: list[ArrayStep] = []
    for operand, result in zip(operands, results, strict=True):
        parts, copies = _parts(operand, parcels.count, collective.dimension)
        yield from copies
        reductions += parcels.reduce(collective.reduction, parts, result, results)
    yield from parcels.exchange()
    yield from reductions


@ALGORITHMS.register(AllToAll)
def all_to_all(
    collective: AllToAll, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[ArrayStep]:
    parcels = PackedMessages(index, len(collective.group))
    laying: list[ArrayStep] = []
    if collective.dimension is None or collective.joined is None:
        laying += parcels.receive(operands, results, operands)
    else:
        for operand, result in zip(operands, results, strict=True):
            parts, copies = _parts(operand, parcels.count, collective.dimension)
            yield from copies
            places = np.split(result, parcels.count, axis=collective.joined)
            laying += parcels.receive(parts, places, operands)
    yield from parcels.exchange()
    yield from laying


@ALGORITHMS.register(CollectivePermute)
def collective_permute(
    collective: CollectivePermute, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[ArrayStep]:
    group, rank = collective.group, collective.group[index]
    source = collective.source_of(rank)
    targets = [group.index(target) for target in collective.targets_of(rank) if target != rank]
    parcels = PackedMessages(index, len(group))
    laying: list[ArrayStep] = []
    for operand, result in zip(operands, results, strict=True):
        parcels.sends += [(target, operand) for target in targets]
        if source is None:
            laying.append(Zero(result))
        elif source == rank:
            laying.append(Copy(operand, result))
        else:
            laying += parcels.receive_from(group.index(source), result, operands)
    yield from parcels.exchange()
    yield from laying


@ALGORITHMS.register(CollectiveBroadcast)
def collective_broadcast(
    collective: CollectiveBroadcast, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[ArrayStep]:
    parcels = PackedMessages(index, len(collective.group))
    if index == 0:
        parcels.sends += itertools.product(parcels.others, operands)
    else:
        parcels.receives += [(0, result) for result in results]
    yield from parcels.exchange()
    if index == 0:
        for operand, result in zip(operands, results, strict=True):
            yield Copy(operand, result)


@ALGORITHMS.register(RaggedAllToAll)
def ragged_all_to_all(
    collective: RaggedAllToAll, index: int, operands: Sequence[Array], results: Sequence[Array]
) -> Iterator[ArrayStep]:
    """Senders know where rows go, so the tables travel first, then each pair's rows as one message."""
    source, output, input_offsets, send_sizes, output_offsets, _ = operands
    (result,) = results
    count = len(collective.group)
    own = np.empty((3, count, input_offsets.size // count), np.int64)
    tables = np.empty((count, *own.shape), np.int64)
    for row, table in zip(own, (input_offsets, send_sizes, output_offsets), strict=True):
        yield Copy(table.reshape(row.shape), row)
    parcels = PackedMessages(index, count)
    laying = parcels.receive([own] * count, list(tables))
    yield from parcels.exchange()
    yield from laying
    received: list[Array] = []

    def exchange_rows() -> Exchange | None:
        _check_rows(tables, len(source), len(result))
        sends = [
            np.concatenate([source[start : start + rows] for start, rows, _ in own[:, peer].T])
            for peer in range(count)
        ]
        received[:] = [
            np.empty((int(tables[peer, 1, index].sum()), *source.shape[1:]), source.dtype)
            for peer in range(count)
        ]
        np.copyto(received[index], sends[index])
        rows_of_all = PackedMessages(index, count)
        rows_of_all.swap(sends, received)
        return next(rows_of_all.exchange(), None)

    def lay_rows() -> None:
        np.copyto(result, output)
        for peer, rows_of_peer in enumerate(received):
            taken = 0
            for _, rows, place in tables[peer, :, index].T:
                result[place : place + rows] = rows_of_peer[taken : taken + rows]
                taken += rows

    yield Deferred(exchange_rows)
    yield Deferred(lay_rows)


def _check_rows(tables: Array, source_rows: int, result_rows: int) -> None:
    """``tables`` [members, 3, members, updates]: everybody's, so that all members find the same."""
    starts, rows, places = tables.swapaxes(0, 1)
    most = np.minimum(source_rows - starts, result_rows - places)
    if (np.stack([starts, places, rows]) < 0).any() or (rows > most).any():
        raise RunError("ragged-all-to-all: offsets and sizes point outside of an array")


def _parts(operand: Array, count: int, dimension: int) -> tuple[list[Array], list[Copy]]:
    """``count`` contiguous parts of ``operand`` along ``dimension``; what fills those that are no views of it."""
    parts: list[Array] = []
    copies: list[Copy] = []
    for view in np.split(operand, count, axis=dimension):
        parts.append(view if view.flags.c_contiguous else np.empty(view.shape, view.dtype))
        if parts[-1] is not view:
            copies.append(Copy(view, parts[-1]))
    return parts, copies
