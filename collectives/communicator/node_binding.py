"""What a rank of a node tells its peers of a collective it has bound: where arrays lie, and how they are reached."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from collectives.communicator.interface import MEMORY_ALIGNMENT
from collectives.communicator.kinds import Collective, Group
from collectives.communicator.native_collective import NativeCollective
from collectives.communicator.shared_buffers import Buffers
from collectives.communicator.shared_window import SharedWindow


@dataclass(frozen=True)
class Spot:
    """Where an array lies: that of a group's i-th member ``first`` + i * ``apart`` bytes behind its segment's start."""

    window: SharedWindow
    first: int
    apart: int = 0

    def address(self, group: Group, index: int) -> int:
        """That of the member's array in this process."""
        return self.window.address(group[index], self.first + index * self.apart)


Places: TypeAlias = Sequence[Spot | None]
"""None for an array in no window, and for an empty one."""


class Protocol(Enum):
    """How the members of a group come to each other's operands."""

    ALONE = "alone"
    SLOTS = "slots"
    IN_PLACE = "in place"
    MESSAGES = "messages"


@dataclass(frozen=True)
class Binding:
    """One bound collective as ``connect`` sees it."""

    name: str
    group: Group
    digest: bytes
    shared: NativeCollective | None = None
    #: Bytes of one of its two slots; 0 where it has none.
    slot_bytes: int = 0
    #: Where it works in place.
    operands: Places = ()
    results: Places = ()

    @property
    def control_bytes(self) -> int:
        """The counter's line, and the slots."""
        return MEMORY_ALIGNMENT + 2 * self.slot_bytes if self.shared else 0


def binding_digest(
    protocol: Protocol,
    collective: Collective,
    name: str,
    buffers: Buffers,
    places: tuple[Places, Places],
) -> bytes:
    """The same for two members only if they have bound the same, in the same places of their memory."""
    arrays = [(array.shape, array.dtype.name) for array in (*buffers.operands, *buffers.results)]
    found = [
        place and (place.window.number, place.first, place.apart)
        for place in (*places[0], *places[1])
    ]
    text = repr((protocol, collective, name, arrays, found))
    return hashlib.sha256(text.encode()).digest()[:16]
