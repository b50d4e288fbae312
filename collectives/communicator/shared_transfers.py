"""What each kind of collective moves between members' memory, as steps: one function per kind, without any meetings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

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
from collectives.communicator.shared_buffers import Addresses, Buffers
from collectives.communicator.shared_steps import CopyRows, FillZero, MoveRows, ReduceRows, Step
from spmd.device import ReductionKind
from spmd.registry import Registry

Transfer: TypeAlias = Callable[[Any, int, Buffers, Sequence[Addresses], Addresses], Iterator[Step]]
"""(collective, own index, arrays, operands' addresses by member, results' addresses) -> steps without meetings."""

TRANSFERS: Registry[type[Collective], Transfer] = Registry("shared-memory transfer")


def transfer(
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
        yield from reduce_rows(collective.reduction, operand, sources, [targets[k]], 1, size)


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
        yield from reduce_rows(
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
    yield from copies(places[0], targets, buffers.results)


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


def copies(sources: Addresses, targets: Addresses, arrays: Sequence[Array]) -> Iterator[Step]:
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


def reduce_rows(
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
