"""Collectives that are enqueued on a GPU's stream and have not ended, and the host's waits for them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from collectives.communicator.group import Group, describe_group
from collectives.communicator.interface import Communicator
from collectives.communicator.wait_context import WaitingWorld, poll_while
from spmd.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collectives.communicator.nccl.cuda_memory import CudaEvent

_SPIN_SECONDS = 200e-6
"""Time for which the host polls its GPU without sleeping, so that short waits have low latency."""

RUN_AHEAD = 16
"""Largest number of collectives in flight."""

_SIGN_SECONDS = 0.5
"""Interval of the notes by which a rank whose GPU computes shows progress to its peers."""


class HostCommunicator(Communicator, WaitingWorld, Protocol):
    """A communicator among processes with the waiting functions that collectives among GPUs need."""


@dataclass(frozen=True)
class AsyncCollective:
    """A collective in flight, or the collectives of a CUDA graph, among the ranks of ``group``.

    ``reached`` and ``ended`` are events on the stream before and after the collective. ``late`` returns the members
    that have certainly not arrived.
    """

    name: str
    group: Group
    reached: CudaEvent
    ended: CudaEvent
    late: Callable[[], list[int]]


@dataclass
class InFlightCollectives:
    """The collectives of one rank that are in flight, in the order of its streams.

    ``raise_if_failed`` must raise an error if NCCL has failed.
    """

    host: HostCommunicator
    raise_if_failed: Callable[[], None] = lambda: None
    _pending: deque[AsyncCollective] = field(default_factory=deque)

    def begin(self, collective: AsyncCollective) -> None:
        """Add a collective that is about to be enqueued.

        Waits as ``wait`` does while RUN_AHEAD collectives are in flight, or one that uses the same events. The queue of
        a GPU is short: if a peer hangs, a host that runs far ahead would block in a launch, where it cannot report it.
        """
        self.oldest()
        while len(self._pending) >= RUN_AHEAD or any(
            one.ended is collective.ended for one in self._pending
        ):
            self._settle(self._pending[0])
            self.oldest()
        self._pending.append(collective)

    def oldest(self) -> AsyncCollective | None:
        """Remove the collectives that have ended, and return the oldest one in flight; None if there is none."""
        while self._pending and self._pending[0].ended.is_done():
            self._pending.popleft()
        return self._pending[0] if self._pending else None

    def oldest_known(self) -> str:
        """Return a text of the oldest collective that is not known to have ended.

        Any thread may call it: it does not query the GPU.
        """
        for collective in tuple(self._pending):
            return f"{collective.name}: group {describe_group(collective.group)}"
        return "between collectives"

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until ``done`` returns True.

        Raises CollectiveTimeoutError if a collective in flight does not end because members are missing, and the error
        of ``raise_if_failed`` if NCCL has failed.
        """
        soon = time.monotonic() + _SPIN_SECONDS
        while not done() and time.monotonic() < soon:
            pass
        while not done():
            self.raise_if_failed()
            collective = self.oldest()
            if collective is None:
                self._compute(done, "its GPU")
            else:
                self._settle(collective)
        self.raise_if_failed()

    def _settle(self, collective: AsyncCollective) -> None:
        """Wait until the GPU reaches ``collective``, then until ``collective`` ends."""
        self._compute(collective.reached.is_done, f"its GPU to reach {collective.name}")
        self._meet(collective)

    def _compute(self, done: Callable[[], bool], what: str) -> None:
        """Wait for ``done`` without a time limit, since this GPU computes and waits for no peer.

        A note is written at intervals, so that the peers see progress.
        """
        next_sign = time.monotonic() + _SIGN_SECONDS

        def has_hope() -> bool:
            nonlocal next_sign
            self.raise_if_failed()
            if time.monotonic() > next_sign:
                self.host.note(f"waits for {what}")
                next_sign = time.monotonic() + _SIGN_SECONDS
            return True

        poll_while(done, has_hope)

    def _meet(self, collective: AsyncCollective) -> None:
        """Wait until ``collective``, which the GPU has reached, ends. Raises CollectiveTimeoutError if peers stall."""
        if collective.ended.is_done():
            return

        def over() -> bool:
            self.raise_if_failed()
            return collective.ended.is_done()

        self.host.wait_until(over, collective.name, collective.group, collective.late)
