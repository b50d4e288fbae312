"""Lowering of actions on arrays (``array_actions``) to actions that native code runs (``shared_actions``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Copy,
    Deferred,
    Exchange,
    LocalBarrier,
    Reduce,
    Zero,
)
from collectives.communicator.actions.shared_actions import (
    Await,
    AwaitMessages,
    CollectiveAction,
    CollectiveProgram,
    CopyRows,
    FillZero,
    Messages,
    ReduceRows,
    Signal,
    StartMessages,
)
from collectives.communicator.actions.shared_buffers import starts_at
from collectives.communicator.group import Array, Group
from spmd.lazy_dataclass import dataclass

#: Function that creates the persistent requests of an exchange.
Prepare: TypeAlias = Callable[[Exchange], Messages]


@dataclass(frozen=True)
class LocalMembers:
    """Counters by which the members on one node signal each other.

    ``counter`` is the address of this member's counter. ``ranks`` are the other members on the node, and ``counters``
    the addresses of their counters.
    """

    counter: int
    ranks: Group
    counters: tuple[int, ...]


def native_program(
    actions: Sequence[ArrayAction],
    prepare: Prepare,
    local_members: LocalMembers | None = None,
    barriers: int = 0,
) -> CollectiveProgram:
    """Return the native program of ``actions``.

    ``prepare`` creates the requests of an exchange. ``barriers`` is the number of local barriers in a run, for which
    ``local_members`` is required.
    """
    native = tuple(
        itertools.chain.from_iterable(_lower(action, prepare, local_members) for action in actions)
    )
    return CollectiveProgram(native, native, signals=max(barriers, 1))


def _lower(
    action: ArrayAction, prepare: Prepare, local_members: LocalMembers | None
) -> Iterator[CollectiveAction]:
    """Yield the native actions of ``action``, which must not be deferred."""
    assert not isinstance(action, Deferred), "what the data decides is for Python"
    if isinstance(action, Copy):
        yield from _copy(action.source, action.target)
    elif isinstance(action, Zero):
        if action.target.nbytes:
            yield FillZero(starts_at(action.target), action.target.nbytes)
    elif isinstance(action, Reduce):
        yield from _reduce(action)
    elif isinstance(action, Exchange):
        if action.sends or action.receives:
            messages = prepare(action)
            yield StartMessages(messages)
            yield AwaitMessages(messages)
    else:
        yield from _meet(action, local_members)


def _meet(barrier: LocalBarrier, local_members: LocalMembers | None) -> Iterator[CollectiveAction]:
    """Yield a barrier of the members on this node: a signal, and a wait for the signals of the others."""
    assert local_members is not None, "only collectives in two levels have local barriers"
    yield Signal(local_members.counter, barrier.number)
    if local_members.ranks:
        yield Await(local_members.ranks, local_members.counters, barrier.number)


def _reduce(action: Reduce) -> Iterator[CollectiveAction]:
    """Yield the reduction of ``action``, or a copy if it has one value. A prefix may be in the accumulator type."""
    values, target = action.values, action.target
    if len(values) == 1:
        yield from _copy(values[0].reshape(-1), target.reshape(-1))
    elif target.size:
        dtype = values[1].dtype
        yield ReduceRows(
            action.reduction,
            dtype,
            tuple(map(starts_at, values)),
            (starts_at(target),),
            rows=1,
            row_elements=target.size,
            source_stride=0,
            target_stride=0,
            from_prefix=values[0].dtype != dtype,
            to_prefix=target.dtype != dtype,
        )


def _copy(source: Array, target: Array) -> Iterator[CollectiveAction]:
    """Yield the copy of ``source`` to ``target``, which have one shape and any strides.

    A row is the longest run of bytes that is contiguous in both arrays. The longest of the other dimensions counts the
    rows of one action; each combination of indices of the remaining dimensions has an action of its own.
    """
    row, outer = _rows_of(source, target)
    is_same = starts_at(source) == starts_at(target) and all(a == b for _, a, b in outer)
    if is_same or not source.size:
        return
    outer.sort(key=lambda dimension: dimension[0])
    rows, here, there = outer.pop() if outer else (1, 0, 0)
    for at in itertools.product(*(range(size) for size, _, _ in outer)):
        before = sum(i * stride for i, (_, stride, _) in zip(at, outer, strict=True))
        behind = sum(i * stride for i, (_, _, stride) in zip(at, outer, strict=True))
        yield CopyRows(
            starts_at(source) + before, starts_at(target) + behind, rows, row, here, there
        )


def _rows_of(source: Array, target: Array) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the bytes of a contiguous row, and (size, source stride, target stride) of each outer dimension.

    Strides are in bytes. Dimensions that can be traversed as one are merged; the innermost comes first.
    """
    row, outer = source.itemsize, list[tuple[int, int, int]]()
    shape = zip(source.shape, source.strides, target.strides, strict=True)
    for size, here, there in reversed([dimension for dimension in shape if dimension[0] != 1]):
        if not outer and here == there == row:
            row *= size
        elif outer and (here, there) == tuple(outer[-1][0] * stride for stride in outer[-1][1:]):
            outer[-1] = outer[-1][0] * size, *outer[-1][1:]
        else:
            outer.append((size, here, there))
    return row, outer
