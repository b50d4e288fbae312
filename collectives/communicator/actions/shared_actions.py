"""Actions of native code for a collective on one rank, as data: signals, waits, messages and copies, in order.

All addresses are this process's own. Members of a group tell each other how far they are by counters, one for each
member of each collective, which only grow: ``Signal`` number k of the r-th run sets the own counter to
(r - 1) * signals + k, and ``Await`` number k waits until other members' counters have reached that. So nothing is ever
reset, and a member may be in the next run while another still looks at this one's counter.

An engine that runs these actions is given to the communicator; runtime/cpu/collective/collective_engine.py makes native
code of them.
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
    """Tell the others: what I did before this is done."""

    counter: int
    number: int


@dataclass(frozen=True, slots=True)
class Await:
    """Go on when all of ``ranks`` have given signal ``number`` of this run."""

    ranks: Group
    counters: tuple[int, ...]
    number: int


@dataclass(frozen=True, slots=True)
class CopyRows:
    """``rows`` pieces of ``row_bytes`` each, at multiples of the strides (bytes) on either side; no overlap."""

    source: int
    target: int
    rows: int
    row_bytes: int
    source_stride: int
    target_stride: int


@dataclass(frozen=True, slots=True)
class SwapRows:
    """``rows`` pieces of ``row_bytes`` each, at multiples of ``stride`` (bytes), change places; no overlap."""

    one: int
    other: int
    rows: int
    row_bytes: int
    stride: int


@dataclass(frozen=True, slots=True)
class RotateBytes:
    """Each of ``addresses`` takes the ``num_bytes`` of the one before it; no overlap.

    The first takes those of the last, or zeros where it is no cycle.
    """

    addresses: tuple[int, ...]
    num_bytes: int
    is_cycle: bool


@dataclass(frozen=True, slots=True)
class FillZero:
    target: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ReduceRows:
    """Every target becomes the reduction of all sources, in their order; two sources or more. Strides in bytes.

    A target may lie on a source, element on element. from_prefix: the first source is in the type in which the others
    are combined (``accumulator_type``); to_prefix: targets are. Either has a single row.
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
    """An exchange of messages as requests that may be started any number of times, in memory that stays.

    All but the last two are addresses and numbers for native code, which calls the functions of a message library.
    """

    @property
    def start_all(self) -> int:
        """``int start_all(int count, request *)``; what is not 0 is the code of an error."""
        ...

    @property
    def test_all(self) -> int:
        """``int test_all(int count, request *, int *all_are_complete, status *)``."""
        ...

    @property
    def count(self) -> int: ...

    @property
    def requests(self) -> int: ...

    @property
    def statuses(self) -> int:
        """Room for one of each request."""
        ...

    @property
    def error(self) -> int:
        """The address of the word that gets an error code."""
        ...

    @property
    def sent(self) -> int:
        """The address of two words that count what has been sent to other nodes: bytes, messages."""
        ...

    @property
    def crossing(self) -> tuple[int, int]:
        """The numbers that a run adds to them: bytes, messages."""
        ...

    def late(self) -> list[int]:
        """Ranks from which something has not come."""
        ...

    def failure(self) -> str:
        """Return the text of the error code."""
        ...


@dataclass(frozen=True, slots=True)
class StartMessages:
    messages: Messages


@dataclass(frozen=True, slots=True)
class AwaitMessages:
    """Go on when all have come and what was sent may be written."""

    messages: Messages


@dataclass(frozen=True, slots=True)
class MoveRows:
    """Rows of ``source`` to rows of ``target``, where three tables in memory say which: offset, amount, new offset."""

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
    """One rank's part in a collective. ``actions`` and ``alternate`` take turns, run by run; equally many of each.

    ``signals``: how many a run gives, the same for every member; at least 1 where runs are to be told apart.
    """

    actions: tuple[CollectiveAction, ...]
    alternate: tuple[CollectiveAction, ...]
    signals: int


# ---- transfers: the actions of one member


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
) -> Iterator[CollectiveAction]:
    """Nothing for nothing, nor for what is there already; rows without gaps in one piece."""
    if rows > 1 and source_stride == target_stride == row_bytes:
        rows, row_bytes = 1, rows * row_bytes
    if rows and row_bytes and source != target:
        yield CopyRows(source, target, rows, row_bytes, source_stride, target_stride)


def join_copies(actions: Iterable[CollectiveAction]) -> Iterator[CollectiveAction]:
    """Yield the actions, where copies of one row each that follow at equal distances are rows of one copy.

    So a member that gathers from equally distant slots has one copy however many members there are.
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
    """Return a copy of the rows of ``before`` and, as its next row, that of ``action``; None if it is no such row."""
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
) -> Iterator[CollectiveAction]:
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
