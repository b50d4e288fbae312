"""Parts of transfers between members' memory, as steps without waits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.communicator.memory import MEMORY_ALIGNMENT
from collectives.communicator.reduction import Array
from collectives.communicator.steps.shared_buffers import Addresses, Buffers
from collectives.communicator.steps.shared_steps import CopyRows, ReduceRows, Step
from spmd.device import ReductionKind


@dataclass(frozen=True)
class Ends:
    """Sources and targets of the transfers of member ``index`` of a group.

    ``operands``: addresses of the operands, by member. ``targets``: addresses of its results. ``holders``: for each
    result, the members that share it in the very same memory, by default this one alone. ``results``: the addresses of
    all members' results, by member, if this one may write there; otherwise empty.
    """

    index: int
    buffers: Buffers
    operands: Sequence[Addresses]
    targets: Addresses
    holders: Sequence[Sequence[int]] = ()
    results: Sequence[Addresses] = ()

    def holders_of(self, result: int) -> Sequence[int]:
        return self.holders[result] if self.holders else [self.index]


def rows_along(array: Array, dimension: int) -> tuple[int, int]:
    """Return the number of consecutive pieces that each hold all of ``dimension``, and the bytes of one."""
    return math.prod(array.shape[:dimension]), math.prod(array.shape[dimension:]) * array.itemsize


def share_of(size: int, item_bytes: int, index: int, count: int) -> tuple[int, int]:
    """Return first and end of the items that member ``index`` of ``count`` works on. Members do not share cache
    lines."""
    line = max(MEMORY_ALIGNMENT // item_bytes, 1)
    part = -(-size // (count * line)) * line
    return min(index * part, size), min((index + 1) * part, size)


def copy_rows(
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


def copies(sources: Addresses, targets: Addresses, arrays: Sequence[Array]) -> Iterator[Step]:
    """Yield a copy of each of ``arrays`` from its source to its target."""
    for source, target, array in zip(sources, targets, arrays, strict=True):
        yield from copy_rows(source, target, 1, array.nbytes)


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
    """Yield the reduction of rows of ``operand``'s type, or their copy if there is one source."""
    row_bytes = row_elements * operand.itemsize
    if len(sources) == 1:
        yield from copy_rows(sources[0], targets[0], rows, row_bytes, source_stride, target_stride)
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
