"""Actions of a collective on the arrays of one rank, as plain data, and their execution by Python.

Actions follow one after the other, and any number of runs makes the same ones on the same arrays. Native code runs them
where it can (``native_message_actions``); ``exchanges_of`` is what they mean, and what runs the others. Members of the
group are named by their index in it.
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
    """Messages to and from other members; the next action is made when all have come and all sent ones may be written.

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
    """Action that depends on the data and runs in Python: local work, then an exchange if it returns one."""

    work: Callable[[], Exchange | None]


ArrayAction: TypeAlias = Copy | Zero | Reduce | Exchange | LocalBarrier | Deferred


def exchanges_of(actions: Sequence[ArrayAction]) -> Iterator[Exchange | LocalBarrier]:
    """Yield the exchanges and local barriers of one run, each when it is due. Ask for the next one when it is over."""
    for action in actions:
        due = _perform(action)
        if due is not None:
            yield due


def _perform(action: ArrayAction) -> Exchange | LocalBarrier | None:
    """Work of the rank's own; otherwise what it is."""
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


# ---- one exchange of messages, put together for all operands of a collective
#
# Buffers may lie on each other: results on operands that are still to be sent, or to be read by this member. Then what
# comes, or the member's own part, goes through memory of its own.


@dataclass
class PackedMessages:
    """Messages that member ``index`` of ``count`` sends and receives in one exchange, packed operand by operand.

    Methods add messages to it, and give the actions that come after the exchange, if any, for who puts all together:

        packed = PackedMessages(index, count)
        after = packed.receive(parts, places)
        actions = (*packed.exchange(), *after)
    """

    index: int
    count: int
    sends: list[Message] = field(default_factory=list)
    receives: list[Message] = field(default_factory=list)

    @property
    def others(self) -> list[int]:
        return [member for member in range(self.count) if member != self.index]

    def exchange(self) -> Iterator[Exchange]:
        """Nothing where nothing is sent or received."""
        if self.sends or self.receives:
            yield Exchange(tuple(self.sends), tuple(self.receives))

    def swap(self, parts: Sequence[Array], inboxes: Sequence[Array]) -> None:
        """Every other member gets its one of ``parts``; what it has for this member comes to its one of ``inboxes``."""
        self.sends += [(member, parts[member]) for member in self.others]
        self.receives += [(member, inboxes[member]) for member in self.others]

    def receive(
        self, parts: Sequence[Array], destinations: Sequence[Array], in_use: Sequence[Array] = ()
    ) -> list[ArrayAction]:
        """Send ``parts`` as ``swap`` does, and receive into ``destinations`` of any strides.

        The own part is copied to its destination.

        in_use: what is sent, or read after the exchange: no message may come there. The own part is copied first.
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
        """Receive a message of ``member`` directly into ``destination``, or through an inbox if that is not contiguous
        or in use."""
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
        """After the exchange ``result`` becomes the reduction of what every member has as its part for this one.

        results: all that is written then.
        """
        values = [np.empty(result.shape, result.dtype) for _ in range(self.count)]
        self.swap(parts, values)
        own = parts[self.index]
        if _is_same(own, result) or not any(overlap(own, one) for one in results):
            values[self.index] = own
            return [Reduce(tuple(values), reduction, result)]
        return [Copy(own, values[self.index]), Reduce(tuple(values), reduction, result)]


def _is_same(one: Array, other: Array) -> bool:
    """Return whether two arrays of one shape are the same memory, element on element."""
    return starts_at(one) == starts_at(other) and one.strides == other.strides


def contiguous_parts(operand: Array, count: int, dimension: int) -> tuple[list[Array], list[Copy]]:
    """Return ``count`` contiguous parts of ``operand`` along ``dimension``, and the copies that fill those that are no
    views of it."""
    parts: list[Array] = []
    copies: list[Copy] = []
    for view in np.split(operand, count, axis=dimension):
        parts.append(view if view.flags.c_contiguous else np.empty(view.shape, view.dtype))
        if parts[-1] is not view:
            copies.append(Copy(view, parts[-1]))
    return parts, copies
