"""Actions of one rank for a collective in native code, as plain data: signals, waits, messages and copies, in order.

All addresses are addresses in this process. Members of a group report their progress by counters that never decrease,
one for each member of each collective: ``Signal`` number k of the r-th run sets the member's own counter to
(r - 1) * signals + k, and ``Await`` number k waits until the counters of other members have reached this value. No
counter is ever reset, so a member may be in its next run while another member still polls its counter.

An engine that runs these actions is passed to the communicator; runtime/cpu/collective/collective_engine.py compiles
them to native code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from collectives.communicator.actions.shared_buffers import MEMORY_ALIGNMENT, Addresses, Buffers
from collectives.communicator.group import Array, Group
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal to the other members that this member has completed all actions before it.

    Signal ``number`` of a run is a store with release order to this member's counter, whose address is ``counter``.
    """

    counter: int
    number: int


@dataclass(frozen=True, slots=True)
class Await:
    """A wait until each of ``ranks`` has given signal ``number`` of this run.

    ``counters``: the addresses of their counters. The loads have acquire order.
    """

    ranks: Group
    counters: tuple[int, ...]
    number: int


@dataclass(frozen=True, slots=True)
class CopyRows:
    """Copy of ``rows`` rows of ``row_bytes`` bytes each. A stride is the bytes from the start of one row to the next.

    Source and target do not overlap.
    """

    source: int
    target: int
    rows: int
    row_bytes: int
    source_stride: int
    target_stride: int


@dataclass(frozen=True, slots=True)
class SwapRows:
    """Exchange of ``rows`` rows of ``row_bytes`` bytes each between addresses ``one`` and ``other``.

    ``stride`` is the bytes from the start of one row to the next on both sides, which do not overlap.
    """

    one: int
    other: int
    rows: int
    row_bytes: int
    stride: int


@dataclass(frozen=True, slots=True)
class RotateBytes:
    """In-place permute: the ``num_bytes`` bytes at each of ``addresses`` move to the next address.

    If ``is_cycle``, the bytes at the last address move to the first; otherwise the first address receives zeros. The
    ranges of bytes do not overlap.
    """

    addresses: tuple[int, ...]
    num_bytes: int
    is_cycle: bool


@dataclass(frozen=True, slots=True)
class FillZero:
    """Fill of ``num_bytes`` bytes from address ``target`` on with zeros."""

    target: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ReduceRows:
    """Reduction of ``rows`` rows of all ``sources``, in their order, into each of ``targets``.

    There are at least two sources. Rows have ``row_elements`` elements of ``dtype``; strides are in bytes. A target may
    coincide with a source, element by element. from_prefix: the first source has the accumulator type
    (``accumulator_type``) instead of ``dtype``. to_prefix: the targets have it. With either flag there is a single row.
    """

    reduction: ReductionKind
    dtype: np.dtype[Any]
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    rows: int
    row_elements: int
    source_stride: int
    target_stride: int
    from_prefix: bool = False
    to_prefix: bool = False


class Messages(Protocol):
    """Persistent requests (MPI_Send_init, MPI_Recv_init) for one exchange, which may be started any number of times.

    All properties are addresses and numbers for native code, which calls the functions of a message library. The memory
    at these addresses lives as long as this object.
    """

    @property
    def start_all(self) -> int:
        """Return the address of MPI_Startall: ``int start_all(int count, request *)`` returns 0 or an error code."""
        ...

    @property
    def test_all(self) -> int:
        """Return the address of MPI_Testall: ``int test_all(int count, request *, int *all_complete, status *)``."""
        ...

    @property
    def count(self) -> int:
        """Return the number of requests."""
        ...

    @property
    def requests(self) -> int:
        """Return the address of the array of request handles."""
        ...

    @property
    def statuses(self) -> int:
        """Return the address of memory for one status of each request."""
        ...

    @property
    def error(self) -> int:
        """Return the address of the 64-bit word to which native code writes the error code of a failed call."""
        ...

    def late(self) -> list[int]:
        """Return the ranks with incomplete requests, which have not sent, or not received what this rank sends."""
        ...

    def failure(self) -> str:
        """Return the text of the error code at ``error``."""
        ...


@dataclass(frozen=True, slots=True)
class StartMessages:
    """Start of all requests of an exchange."""

    messages: Messages


@dataclass(frozen=True, slots=True)
class AwaitMessages:
    """A wait until all messages have been received and the sent arrays may be overwritten."""

    messages: Messages


@dataclass(frozen=True, slots=True)
class MoveRows:
    """Copies of ranges of rows from ``source`` to ``target``, as three tables in memory describe them.

    ``tables``: addresses of ``entries`` integers of ``index_dtype`` each: first row in the source, number of rows,
    first row in the target. A range outside of ``source_rows`` or ``target_rows`` ends the run with
    RunStatus.OUT_OF_BOUNDS.
    """

    source: int
    target: int
    tables: tuple[int, int, int]
    index_dtype: np.dtype[Any]
    entries: int
    row_bytes: int
    source_rows: int
    target_rows: int


CollectiveAction: TypeAlias = (
    Signal
    | Await
    | StartMessages
    | AwaitMessages
    | CopyRows
    | SwapRows
    | RotateBytes
    | FillZero
    | ReduceRows
    | MoveRows
)


@dataclass(frozen=True)
class CollectiveProgram:
    """One rank's part in a collective. Runs alternate between ``actions`` and ``alternate``.

    The two sequences have the same kinds of actions in the same order; they differ in addresses of slots. ``signals``
    is the number of signals in a run, equal on every member, and at least 1 if runs must be distinguishable
    (``LoadedCollective.run``).
    """

    actions: tuple[CollectiveAction, ...]
    alternate: tuple[CollectiveAction, ...]
    signals: int


# ---- transfers: the actions of one member


@dataclass(frozen=True)
class Ends:
    """Sources and targets of the transfers of member ``index`` of a group.

    operands: addresses of the operands of each member. targets: addresses of this member's results. holders: for each
    result, the members that hold it in the same memory; if empty, this member alone. results: addresses of the results
    of each member, if this member may write there; otherwise empty.
    """

    index: int
    buffers: Buffers
    operands: Sequence[Addresses]
    targets: Addresses
    holders: Sequence[Sequence[int]] = ()
    results: Sequence[Addresses] = ()

    def holders_of(self, result: int) -> Sequence[int]:
        """Return the members that hold result number ``result`` in the same memory."""
        return self.holders[result] if self.holders else [self.index]


def rows_along(array: Array, dimension: int) -> tuple[int, int]:
    """Return the number of contiguous pieces of ``array`` that each span all of ``dimension``, and the bytes of one."""
    return math.prod(array.shape[:dimension]), math.prod(array.shape[dimension:]) * array.itemsize


def share_of(size: int, item_bytes: int, index: int, count: int) -> tuple[int, int]:
    """Return the first and the end of the items, of ``size``, that member ``index`` of ``count`` processes.

    Items have ``item_bytes`` bytes. Ranges begin at multiples of a cache line from the first item, so that no two
    members write the same line.
    """
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
) -> Iterator[CollectiveAction]:
    """Yield the copy of ``rows`` rows of ``row_bytes`` bytes each; strides are in bytes.

    Rows without gaps on both sides are copied as one row. Nothing is yielded if there are no bytes, or if source and
    target are the same address.
    """
    if rows > 1 and source_stride == target_stride == row_bytes:
        rows, row_bytes = 1, rows * row_bytes
    if rows and row_bytes and source != target:
        yield CopyRows(source, target, rows, row_bytes, source_stride, target_stride)


def join_copies(actions: Iterable[CollectiveAction]) -> Iterator[CollectiveAction]:
    """Yield ``actions``, with consecutive copies of one row at equal distances merged into one copy of several rows.

    A member that gathers from equally spaced slots then has one copy, however many members there are.
    """
    waiting: CopyRows | None = None
    for action in actions:
        joined = _joined(waiting, action) if waiting is not None else None
        if joined is None and waiting is not None:
            yield waiting
        if isinstance(action, CopyRows):
            waiting = joined or action
        else:
            waiting = None
            yield action
    if waiting is not None:
        yield waiting


def _joined(before: CopyRows, action: CollectiveAction) -> CopyRows | None:
    """Return ``before`` with the row of ``action`` appended, or None if ``action`` is not a copy of its next row."""
    if not isinstance(action, CopyRows) or action.rows != 1 or action.row_bytes != before.row_bytes:
        return None
    rows = before.rows
    between = action.source - before.source, action.target - before.target
    strides = before.source_stride, before.target_stride
    if rows > 1 and between != (rows * strides[0], rows * strides[1]):
        return None
    source_stride, target_stride = strides if rows > 1 else between
    return replace(before, rows=rows + 1, source_stride=source_stride, target_stride=target_stride)


def copies(
    sources: Addresses, targets: Addresses, arrays: Sequence[Array]
) -> Iterator[CollectiveAction]:
    """Yield the copies of ``arrays`` from addresses ``sources`` to addresses ``targets``. Only array sizes matter."""
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
) -> Iterator[CollectiveAction]:
    """Yield the reduction of rows of ``operand``'s type from all ``sources`` to each of ``targets``.

    Strides are in bytes. A single source is copied to the first target. Nothing is yielded if there are no elements.
    """
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
