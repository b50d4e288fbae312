"""Transfers of each kind of collective between members' memory, as steps: one function per kind, without waits."""

from __future__ import annotations

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
from collectives.communicator.node.shared_buffers import Addresses, Buffers
from collectives.communicator.node.shared_steps import (
    CopyRows,
    FillZero,
    MoveRows,
    ReduceRows,
    Step,
    SwapRows,
)
from collectives.communicator.reduction import Array
from spmd.device import ReductionKind
from spmd.registry import Registry


@dataclass(frozen=True)
class Ends:
    """Sources and targets of the transfers of member ``index`` of a group.

    ``places``: operands' addresses, by member. ``targets``: addresses of its results. ``holders``: for each result, the
    members that hold it together in the very same memory, by default this one alone.
    """

    index: int
    buffers: Buffers
    places: Sequence[Addresses]
    targets: Addresses
    holders: Sequence[Sequence[int]] = ()

    def holders_of(self, result: int) -> Sequence[int]:
        return self.holders[result] if self.holders else [self.index]


Transfer: TypeAlias = Callable[[Any, Ends], Iterator[Step]]
"""(collective, ends) -> steps without meetings."""

TRANSFERS: Registry[type[Collective], Transfer] = Registry("shared-memory transfer")

_SPLIT_BYTES = 1024
"""Of rows of so many bytes each of two members swaps one half; shorter ones are dealt out whole."""


def transfer(collective: Collective, ends: Ends) -> Iterator[Step]:
    return TRANSFERS[type(collective)](collective, ends)


@TRANSFERS.register(AllReduce)
def all_reduce(collective: AllReduce, ends: Ends) -> Iterator[Step]:
    for k, operand in enumerate(ends.buffers.operands):
        sources = [member[k] for member in ends.places]
        target, size = ends.targets[k], operand.size
        yield from reduce_rows(collective.reduction, operand, sources, [target], 1, size)


@TRANSFERS.register(AllGather)
def all_gather(collective: AllGather, ends: Ends) -> Iterator[Step]:
    """Yield the copies of an all-gather. Members that share a result each write their own tile, and a share of the
    tiles of other members."""
    count = len(ends.places)
    for k, operand in enumerate(ends.buffers.operands):
        rows, row = _rows(operand, collective.dimension)
        holders = ends.holders_of(k)
        for i, member in enumerate(ends.places):
            writer = i if i in holders else holders[i % len(holders)]
            if writer == ends.index:
                yield from _copy(member[k], ends.targets[k] + i * row, rows, row, row, count * row)


@TRANSFERS.register(ReduceScatter)
def reduce_scatter(collective: ReduceScatter, ends: Ends) -> Iterator[Step]:
    for k, operand in enumerate(ends.buffers.operands):
        rows, row = _rows(operand, collective.dimension)
        part = row // len(ends.places)
        sources = [member[k] + ends.index * part for member in ends.places]
        elements = part // operand.itemsize
        yield from reduce_rows(
            collective.reduction, operand, sources, [ends.targets[k]], rows, elements, row, part
        )


@TRANSFERS.register(AllToAll)
def all_to_all(collective: AllToAll, ends: Ends) -> Iterator[Step]:
    """Yield the copies of an all-to-all. If results are the operands, each pair of members swaps its parts, one half
    each."""
    keeps_places = collective.joined == collective.dimension
    is_in_place = keeps_places and tuple(ends.targets) == tuple(ends.places[ends.index])
    for i, part in _parts_for(collective, ends):
        if not is_in_place:
            yield from _copy_part(part)
        elif i != ends.index:
            first = ends.index < i
            yield from _swap_half(
                part.target, part.source, part.rows, part.row, part.stride, is_first=first
            )


@dataclass(frozen=True, slots=True)
class _Part:
    """Part that one member has for another: ``rows`` of ``row`` bytes that lie ``stride`` bytes apart.

    They go to ``target_rows`` of ``target_row`` bytes, ``target_stride`` apart: as many bytes in the same order.
    """

    source: int
    target: int
    rows: int
    row: int
    stride: int
    target_rows: int
    target_row: int
    target_stride: int


def _parts_for(collective: AllToAll, ends: Ends) -> Iterator[tuple[int, _Part]]:
    """Each member, and what it has for this one."""
    index, members = ends.index, list(enumerate(ends.places))
    split, joined = collective.dimension, collective.joined
    if split is None or joined is None:
        for i, member in members:
            size = ends.buffers.results[i].nbytes
            yield i, _Part(member[index], ends.targets[i], 1, size, size, 1, size, size)
        return
    for k, (operand, result) in enumerate(
        zip(ends.buffers.operands, ends.buffers.results, strict=True)
    ):
        rows, stride = _rows(operand, split)
        target_rows, target_stride = _rows(result, joined)
        row, target_row = stride // len(members), target_stride // len(members)
        for i, member in members:
            source, target = member[k] + index * row, ends.targets[k] + i * target_row
            yield (
                i,
                _Part(source, target, rows, row, stride, target_rows, target_row, target_stride),
            )


def _copy_part(part: _Part) -> Iterator[Step]:
    """The side with the longer rows has several of the other's in each."""
    if part.row == part.target_row:
        yield from _copy(
            part.source, part.target, part.rows, part.row, part.stride, part.target_stride
        )
    elif part.row < part.target_row:
        inside = part.target_row // part.row
        for k in range(part.target_rows):
            source = part.source + k * inside * part.stride
            target = part.target + k * part.target_stride
            yield from _copy(source, target, inside, part.row, part.stride, part.row)
    else:
        inside = part.row // part.target_row if part.target_row else 0
        for k in range(part.rows):
            source = part.source + k * part.stride
            target = part.target + k * inside * part.target_stride
            yield from _copy(
                source, target, inside, part.target_row, part.target_row, part.target_stride
            )


@TRANSFERS.register(CollectivePermute)
def collective_permute(collective: CollectivePermute, ends: Ends) -> Iterator[Step]:
    source = collective.source_of(collective.group[ends.index])
    for k, result in enumerate(ends.buffers.results):
        if source is not None:
            place = ends.places[collective.group.index(source)][k]
            yield from _copy(place, ends.targets[k], 1, result.nbytes)
        elif result.nbytes:
            yield FillZero(ends.targets[k], result.nbytes)


@TRANSFERS.register(CollectiveBroadcast)
def collective_broadcast(_collective: CollectiveBroadcast, ends: Ends) -> Iterator[Step]:
    """Yield the copies of a broadcast. Of the members that share a result, the first writes it."""
    for k, result in enumerate(ends.buffers.results):
        if ends.index == min(ends.holders_of(k)):
            yield from _copy(ends.places[0][k], ends.targets[k], 1, result.nbytes)


@TRANSFERS.register(RaggedAllToAll)
def ragged_all_to_all(_collective: RaggedAllToAll, ends: Ends) -> Iterator[Step]:
    source, output, table = ends.buffers.operands[:3]
    yield from _copy(ends.places[ends.index][1], ends.targets[0], 1, output.nbytes)
    row_bytes = math.prod(source.shape[1:]) * source.itemsize
    entries = table.size // len(ends.places)
    if not row_bytes or not entries:
        return
    for member in ends.places:
        input_offsets, send_sizes, output_offsets = (
            address + ends.index * entries * table.itemsize for address in member[2:5]
        )
        yield MoveRows(
            member[0],
            ends.targets[0],
            (input_offsets, send_sizes, output_offsets),
            table.dtype,
            entries,
            row_bytes,
            source.shape[0],
            output.shape[0],
        )


def _rows(array: Array, dimension: int) -> tuple[int, int]:
    """Return the number of consecutive pieces that each hold all of ``dimension``, and the bytes of one."""
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


def _swap_half(
    one: int, other: int, rows: int, row_bytes: int, stride: int, *, is_first: bool
) -> Iterator[Step]:
    """One of two members swaps the first half, the other the second."""
    if rows == 1 or row_bytes >= _SPLIT_BYTES:
        half = row_bytes // 2 // MEMORY_ALIGNMENT * MEMORY_ALIGNMENT
        start, row_bytes = (0, half) if is_first else (half, row_bytes - half)
    else:
        half = rows // 2
        start, rows = (0, half) if is_first else (half * stride, rows - half)
    if rows and row_bytes:
        yield SwapRows(one + start, other + start, rows, row_bytes, stride)


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
