"""A gate that the ranks of a node pass together: who comes early sleeps in the kernel until it opens.

It opens when the last one comes; or, where one of them is its *keeper*, when that one opens it, who is woken when all
have come. Nobody polls: on cores that ranks have to share, who waits takes no time from who is waited for, and who has
slept comes before the busy.

    barrier                 rank 0 comes ─ sleeps ──────────┐ opens
                            rank 1 comes, the last ─ opens ─┘ goes on
    with rank 0 as keeper   rank 0 comes ─ sleeps ─ called ─ works for all ─ opens
                            rank 1 comes, the last ─ calls ─ sleeps ─────────────── goes on

A member's line holds how often it has come, which tells the others who is late. Words only grow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from collectives.communicator.interface import MEMORY_ALIGNMENT
from collectives.communicator.kinds import Group
from collectives.communicator.reduction import Array
from collectives.communicator.shared_window import SharedWindow

#: Of each member: its own line. Of the first one also how often members have come together, and two words at which
#: they sleep, each followed by the number of those who may: it has been called, it has been opened.
GATE_BYTES = 4 * MEMORY_ALIGNMENT
_OWN, _COME, _CALLED, _OPENED = range(0, GATE_BYTES, MEMORY_ALIGNMENT)

_LOOKS = 2000
"""Looks before a member sleeps, some 100 us, where everyone has a core: to wake a core that idles takes longer."""


@dataclass(frozen=True, slots=True)
class GateWords:
    """One member's part in a gate, as addresses of 64-bit words in this process.

    own: how often it has come. come: how often all have, together. last_opens: what the last one to come sets to the
    number of this passage. awaited: what this member waits for to be that. opens: what a keeper sets in the end.
    looks: how often to look before it sleeps.
    """

    members: int
    own: int
    come: int
    last_opens: int
    awaited: int
    opens: int
    looks: int


class LoadedGate(Protocol):
    """Native code for one member."""

    @property
    def number(self) -> int:
        """Of the passage that has begun last."""
        ...

    def enter(self) -> int:
        """Come to the next passage, and wait: 0 when it is over."""
        ...

    def wait(self) -> int:
        """Wait again, for a while or until a signal comes: 0 when it is over."""
        ...

    def open(self) -> None:
        """The keeper lets all pass."""
        ...


class GateEngine(Protocol):
    """What makes native code of words."""

    def gate(self, words: GateWords) -> LoadedGate: ...


class Gate:
    """This rank's side of a gate. Each passage: ``enter``, then ``wait`` until that says True; the keeper ``open``."""

    def __init__(
        self,
        engine: GateEngine,
        window: SharedWindow,
        rank: int,
        members: Group,
        *,
        offset: int = 0,
        keeper: int | None = None,
        has_cores: bool,
    ) -> None:
        """``offset``: where GATE_BYTES of zeros lie in every member's segment. has_cores: one for each member."""
        first = members[0]
        self.keeper = keeper
        self._lines = {member: window.address(member, offset + _OWN) for member in members}
        called, opened = (window.address(first, offset + word) for word in (_CALLED, _OPENED))
        self._gate = engine.gate(
            GateWords(
                members=len(members),
                own=self._lines[rank],
                come=window.address(first, offset + _COME),
                last_opens=opened if keeper is None else called,
                awaited=called if keeper == rank else opened,
                opens=opened,
                looks=_LOOKS if has_cores else 0,
            )
        )
        self._keep: Sequence[Array] = [window.segment(rank, offset + GATE_BYTES)]

    def enter(self) -> bool:
        return not self._gate.enter()

    def wait(self) -> bool:
        """Some tenth of a second at most, so that the caller can watch the others."""
        return not self._gate.wait()

    def open(self) -> None:
        self._gate.open()

    def late(self) -> list[int]:
        """Members that have not come to the passage at which this one is; when all have, the keeper."""
        number = self._gate.number
        absent = [
            member
            for member, line in self._lines.items()
            if ctypes.c_int64.from_address(line).value < number
        ]
        return absent if absent or self.keeper is None else [self.keeper]
