"""Actions of a collective on the arrays of one rank, as plain data, and their execution by Python.

Actions run one after the other, and every run of a collective repeats the same actions on the same arrays.
``exchanges_of`` defines their meaning. Native code runs them if it can (``native_message_actions``), otherwise
``exchanges_of`` does. Members of the group are identified by their index in the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TypeAlias

import numpy as np

from collectives.communicator.actions.shared_buffers import overlap, starts_at
from collectives.communicator.group import Array, reduce_in_order
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass

Message: TypeAlias = tuple[int, Array]
"""The member at the other end, and the C-contiguous array that is sent or received."""


@dataclass(frozen=True, eq=False)
class Copy:
    """Copy of ``source`` to ``target``, which have one shape and type and any strides.

    The two arrays are either the same memory or have no bytes in common.
    """

    source: Array
    target: Array


@dataclass(frozen=True, eq=False)
class Zero:
    """Fill of the C-contiguous array ``target`` with zeros."""

    target: Array


@dataclass(frozen=True, eq=False)
class Reduce:
    """Reduction ``target`` = values[0] op values[1] op ... of C-contiguous arrays of one size (``reduce_in_order``).

    ``target`` may be one of the values. All arrays have one type, with two exceptions: the first of several values and
    ``target`` may be prefixes (partial reductions) in the accumulator type of the other values (``accumulator_type``).
    """

    values: tuple[Array, ...]
    reduction: ReductionKind
    target: Array


@dataclass(frozen=True, eq=False)
class Exchange:
    """Messages to and from other members.

    The next action runs when all messages have been received and the sent arrays may be overwritten. The messages from
    one member to another are received in the order in which they are sent.
    """

    sends: tuple[Message, ...] = ()
    receives: tuple[Message, ...] = ()


@dataclass(frozen=True)
class LocalBarrier:
    """A barrier among the members on one node, in a group that spans nodes (``hierarchical``).

    ``number`` is the position among the barriers of a run, from 1.
    """

    number: int


@dataclass(frozen=True, eq=False)
class Deferred:
    """Action that depends on the data and runs in Python: local work, then the exchange that it returns, if any."""

    work: Callable[[], Exchange | None]


ArrayAction: TypeAlias = Copy | Zero | Reduce | Exchange | LocalBarrier | Deferred


def exchanges_of(actions: Sequence[ArrayAction]) -> Iterator[Exchange | LocalBarrier]:
    """Perform the local actions of one run, and yield each exchange and local barrier when it is due.

    The caller completes the exchange or barrier before it advances the iterator.
    """
    for action in actions:
        due = _perform(action)
        if due is not None:
            yield due


def _perform(action: ArrayAction) -> Exchange | LocalBarrier | None:
    """Perform ``action`` if it is local. Returns the exchange or barrier that the caller must perform, if any."""
    if isinstance(action, Copy):
        np.copyto(action.target, action.source)
    elif isinstance(action, Zero):
        action.target.fill(0)
    elif isinstance(action, Reduce):
        reduce_in_order(action.values, action.reduction, action.target)
    elif isinstance(action, Deferred):
        return action.work()
    else:
        return action
    return None


def concatenate(values: Sequence[Array], dimension: int, result: Array) -> Iterator[Copy]:
    """Yield the copies that concatenate ``values`` along ``dimension`` in ``result``."""
    for value, view in zip(values, _views(values, dimension, result), strict=True):
        yield Copy(value, view)


def separate(value: Array, dimension: int, results: Sequence[Array]) -> Iterator[Copy]:
    """Yield the copies of consecutive parts of ``value`` along ``dimension`` to ``results``."""
    for view, result in zip(_views(results, dimension, value), results, strict=True):
        yield Copy(view, result)


def _views(parts: Sequence[Array], dimension: int, joined: Array) -> list[Array]:
    """Return the views of ``joined`` that hold ``parts``, which follow each other along ``dimension``."""
    ends = np.cumsum([part.shape[dimension] for part in parts])
    return np.split(joined, ends[:-1], axis=dimension)


# ---- one exchange of messages for all operands of a collective
#
# Buffers may overlap: a result may lie on an operand that has yet to be sent, or to be read by this member. A received
# message, or the member's own part, then goes through a temporary array.


@dataclass
class PackedMessages:
    """Messages that member ``index`` of ``count`` sends and receives in one exchange, for all operands of a collective.

    Methods add messages and return the actions that must follow the exchange. The caller assembles the sequence:

        packed = PackedMessages(index, count)
        after = packed.receive(parts, destinations)
        actions = (*packed.exchange(), *after)
    """

    index: int
    count: int
    sends: list[Message] = field(default_factory=list)
    receives: list[Message] = field(default_factory=list)

    @property
    def others(self) -> list[int]:
        """Return the indices of the other members."""
        return [member for member in range(self.count) if member != self.index]

    def exchange(self) -> Iterator[Exchange]:
        """Yield the exchange of all messages added so far; nothing if there are none."""
        if self.sends or self.receives:
            yield Exchange(tuple(self.sends), tuple(self.receives))

    def swap(self, parts: Sequence[Array], inboxes: Sequence[Array]) -> None:
        """Send ``parts[i]`` to each other member i, and receive the message of member i into ``inboxes[i]``.

        All these arrays are C-contiguous.
        """
        self.sends += [(member, parts[member]) for member in self.others]
        self.receives += [(member, inboxes[member]) for member in self.others]

    def receive(
        self, parts: Sequence[Array], destinations: Sequence[Array], in_use: Sequence[Array] = ()
    ) -> list[ArrayAction]:
        """Send ``parts`` as ``swap`` does, and receive into ``destinations``, which may have any strides.

        in_use: arrays that are sent, or read after the exchange, so that no message may be received there. Returns the
        copies after the exchange: first the member's own part to its destination, then messages from temporary arrays.
        """
        laying: list[ArrayAction] = []
        self.sends += [(member, parts[member]) for member in self.others]
        for member in self.others:
            laying += self.receive_from(member, destinations[member], in_use)
        own, destination = parts[self.index], destinations[self.index]
        if not _is_same(own, destination) and np.may_share_memory(own, destination):
            inbox = np.empty(own.shape, own.dtype)
            return [Copy(own, inbox), Copy(inbox, destination), *laying]
        return [Copy(own, destination), *laying]

    def receive_from(
        self, member: int, destination: Array, in_use: Sequence[Array] = ()
    ) -> list[Copy]:
        """Receive a message of ``member`` into ``destination``. Returns the copy that must follow the exchange, if any.

        The message goes through a temporary array if ``destination`` is not contiguous or overlaps one of ``in_use``.
        """
        is_free = destination.flags.c_contiguous and not any(
            overlap(destination, one) for one in in_use
        )
        inbox = destination if is_free else np.empty(destination.shape, destination.dtype)
        self.receives.append((member, inbox))
        return [] if inbox is destination else [Copy(inbox, destination)]

    def reduce(
        self,
        reduction: ReductionKind,
        parts: Sequence[Array],
        result: Array,
        results: Sequence[Array],
    ) -> list[ArrayAction]:
        """Exchange ``parts`` as ``swap`` does. Returns the actions that reduce all members' parts for this member.

        The reduction is in group order and goes to ``result``. results: all arrays that are written after the exchange;
        if the member's own part overlaps one of them, a copy of the part is reduced.
        """
        values = [np.empty(result.shape, result.dtype) for _ in range(self.count)]
        self.swap(parts, values)
        own = parts[self.index]
        if _is_same(own, result) or not any(overlap(own, one) for one in results):
            values[self.index] = own
            return [Reduce(tuple(values), reduction, result)]
        return [Copy(own, values[self.index]), Reduce(tuple(values), reduction, result)]


def _is_same(one: Array, other: Array) -> bool:
    """Return whether two arrays of one shape have their elements at the same addresses."""
    return starts_at(one) == starts_at(other) and one.strides == other.strides


def contiguous_parts(operand: Array, count: int, dimension: int) -> tuple[list[Array], list[Copy]]:
    """Split ``operand`` into ``count`` equal parts along ``dimension``.

    Returns the parts, each a contiguous view or a new array, and the copies that fill the new arrays.
    """
    parts: list[Array] = []
    copies: list[Copy] = []
    for view in np.split(operand, count, axis=dimension):
        parts.append(view if view.flags.c_contiguous else np.empty(view.shape, view.dtype))
        if parts[-1] is not view:
            copies.append(Copy(view, parts[-1]))
    return parts, copies
