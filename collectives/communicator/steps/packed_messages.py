"""One exchange of messages, as it is put together for all operands of a collective, and what is to be done after it.

Buffers may lie on each other: results on operands that are still to be sent, or to be read by this member. Then what
comes, or the member's own part, goes through memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from collectives.communicator.reduction import Array
from collectives.communicator.steps.array_steps import ArrayStep, Copy, Exchange, Message, Reduce
from collectives.communicator.steps.shared_buffers import overlap, starts_at
from spmd.device import ReductionKind


@dataclass
class PackedMessages:
    """Messages that member ``index`` of ``count`` sends and receives in one exchange, packed operand by operand.

    Methods add messages to it, and give the steps that come after the exchange, if any, for whoever puts all together:

        packed = PackedMessages(index, count)
        after = packed.receive(parts, places)
        steps = (*packed.exchange(), *after)
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
    ) -> list[ArrayStep]:
        """Send ``parts`` as ``swap`` does, and receive into ``destinations`` of any strides.

        The own part is copied to its destination.

        in_use: what is sent, or read after the exchange: no message may come there. The own part is copied first.
        """
        laying: list[ArrayStep] = []
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
    ) -> list[ArrayStep]:
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
