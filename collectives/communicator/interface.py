"""What the runtime asks of a communicator: start a collective on buffers, and wait for it.

Every device calls the same collectives in the same order (per group); the compile half proves it before
the first step. A device is a global rank: replica * num_partitions + partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from collectives.communicator.kinds import Collective, Group
from collectives.communicator.reduction import Array
from spmd.errors import RunError


class PeerFailedError(RunError):
    """Another rank failed first; its own error says why. Carries the rank where it is known."""

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class Pending(Protocol):
    """A collective that has been started.

    Between start and the end of ``wait`` the operands must not be written, and the results neither read nor
    written. Results are complete when ``wait`` returns or ``test`` has answered True.
    """

    def test(self) -> bool:
        """Make what progress can be made without waiting; True when the results are complete."""
        ...

    def wait(self) -> None:
        """Block until the results are complete. CollectiveTimeoutError names who is missing."""
        ...


class Communicator(Protocol):
    """One device's end of the communication among all devices of a program."""

    @property
    def rank(self) -> int:
        """This device, 0 <= rank < size."""
        ...

    @property
    def size(self) -> int: ...

    def start(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[Array],
        results: Sequence[Array],
    ) -> Pending:
        """Begin ``collective``, which must hold this rank in its group.

        ``operands`` and ``results`` are C-contiguous arrays, results written in place. An all-reduce's result may be
        its operand's memory. ``name`` is the instruction's and appears in errors.
        """
        ...

    def prepare(self, groups: Iterable[Group]) -> None:
        """Set up what the groups need before the first step; every rank passes the same groups in the same order."""
        ...

    def note(self, text: str) -> None:
        """Leave word of what this rank does, for the message of a peer that waits for it in vain."""
        ...

    def barrier(self) -> None:
        """Return when every rank has called it."""
        ...

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """What every rank passed, in rank order, on every rank."""
        ...

    def gather_bytes(self, data: bytes, root: int = 0) -> list[bytes] | None:
        """What every rank passed, in rank order, on ``root``; None elsewhere."""
        ...

    def broadcast_bytes(self, data: bytes | None, root: int = 0) -> bytes:
        """What ``root`` passed, on every rank."""
        ...


def describe_group(group: Group) -> str:
    """Ranks for a message: all of a short group, the ends of a long one."""
    if len(group) <= 16:
        return "{" + ",".join(map(str, group)) + "}"
    return f"{{{group[0]},{group[1]},...,{group[-1]}}} ({len(group)} ranks)"
