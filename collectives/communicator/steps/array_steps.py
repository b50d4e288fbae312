"""Steps of a collective on the arrays of one rank, as plain data, and their execution by Python.

Steps follow one after the other, and any number of runs makes the same ones on the same arrays. Native code runs them
where it can (``native_message_steps``); ``exchanges_of`` is what they mean, and what runs the others. Members of the
group are named by their index in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from collectives.communicator.reduction import Array, reduce_in_order
from spmd.device import ReductionKind

Message: TypeAlias = tuple[int, Array]
"""The member at the other end, and the bytes that go there or come from there: a C-contiguous array."""


@dataclass(frozen=True, eq=False)
class Copy:
    """Arrays of one shape and type, of any strides; they are the same memory or have none in common."""

    source: Array
    target: Array


@dataclass(frozen=True, eq=False)
class Zero:
    """``target`` is C-contiguous."""

    target: Array


@dataclass(frozen=True, eq=False)
class Reduce:
    """``target`` = values[0] op values[1] op ..., all C-contiguous, of one size (``reduce_in_order``).

    It may be one of the values. They have one type; but the first of several may be a prefix, in the type in which the
    others are combined, and so may ``target``.
    """

    values: tuple[Array, ...]
    reduction: ReductionKind
    target: Array


@dataclass(frozen=True, eq=False)
class Exchange:
    """Messages to and from other members; the next step is made when all have come and all sent ones may be written.

    What goes from one member to another arrives in the order in which it stands here.
    """

    sends: tuple[Message, ...] = ()
    receives: tuple[Message, ...] = ()


@dataclass(frozen=True)
class LocalBarrier:
    """The members on one node come together, in a group that spans nodes (``hierarchical``); numbered within a run."""

    number: int


@dataclass(frozen=True, eq=False)
class Deferred:
    """Step that depends on the data and runs in Python: local work, then an exchange if it returns one."""

    work: Callable[[], Exchange | None]


ArrayStep: TypeAlias = Copy | Zero | Reduce | Exchange | LocalBarrier | Deferred


def exchanges_of(steps: Sequence[ArrayStep]) -> Iterator[Exchange | LocalBarrier]:
    """Yield the exchanges and local barriers of one run, each when it is due. Ask for the next one when it is over."""
    for step in steps:
        due = _perform(step)
        if due is not None:
            yield due


def _perform(step: ArrayStep) -> Exchange | LocalBarrier | None:
    """Work of the rank's own; otherwise what it is."""
    if isinstance(step, Copy):
        np.copyto(step.target, step.source)
    elif isinstance(step, Zero):
        step.target.fill(0)
    elif isinstance(step, Reduce):
        reduce_in_order(step.values, step.reduction, step.target)
    elif isinstance(step, Deferred):
        return step.work()
    else:
        return step
    return None


def concatenate(values: Sequence[Array], dimension: int, result: Array) -> Iterator[Copy]:
    """``result`` becomes the values, one after the other along ``dimension``."""
    for value, view in zip(values, _views(values, dimension, result), strict=True):
        yield Copy(value, view)


def separate(value: Array, dimension: int, results: Sequence[Array]) -> Iterator[Copy]:
    """The results become parts of ``value``, one after the other along ``dimension``."""
    for view, result in zip(_views(results, dimension, value), results, strict=True):
        yield Copy(view, result)


def _views(parts: Sequence[Array], dimension: int, joined: Array) -> list[Array]:
    """Return the views of ``joined`` in which the parts lie."""
    ends = np.cumsum([part.shape[dimension] for part in parts])
    return np.split(joined, ends[:-1], axis=dimension)
