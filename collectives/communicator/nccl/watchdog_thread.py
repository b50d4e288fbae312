"""Watchdog of NCCL: a thread that detects asynchronous errors and calls that do not return, and aborts communicators.

The watchdog needs a thread of its own because the thread that issues work may be blocked in a call of NCCL or CUDA that
waits for a peer. It polls at intervals, with calls that do not block.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collectives.communicator.nccl.api import NcclError, NcclLibrary, NcclResult
from collectives.communicator.nccl.group_communicators import Cliques
from spmd.errors import RunError

#: Interval of the polls.
PERIOD_SECONDS = 0.1

#: Time for which ``stop`` waits for the thread at most.
_STOP_SECONDS = 5.0

ESCALATION_SECONDS = 20.0
"""Time after an abort for NCCL to return from its calls. The process ends if it does not."""


class NcclWatch:
    """The watchdog thread of one rank, and the failure that it or another thread has recorded."""

    def __init__(
        self,
        api: NcclLibrary,
        cliques: Cliques,
        prefix: str,
        timeout_seconds: float,
        give_up: Callable[[str], None],
        oldest: Callable[[], str],
    ) -> None:
        """Start the thread, which watches the communicators of ``cliques``.

        ``prefix`` begins each message. ``timeout_seconds`` is the time that one call of NCCL may take. ``oldest``
        returns a text of the oldest collective in flight. ``give_up`` must end this process with a message; it is
        called if a thread is still blocked in NCCL ESCALATION_SECONDS after an abort.
        """
        self._api = api
        self._cliques = cliques
        self._prefix = prefix
        self._timeout = timeout_seconds
        self._give_up = give_up
        self._oldest = oldest
        self._failure: str | None = None
        self._lock = threading.Lock()
        self._call: tuple[str, float] | None = None
        self._escalation: threading.Timer | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="NCCL watch", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Return whether a failure is recorded."""
        return self._failure is not None

    def raise_if_failed(self) -> None:
        """Raise RunError if a failure is recorded.

        Only the thread that issues work may call it, since it also cancels the escalation (``settle``).
        """
        if self._failure is not None:
            self.settle()
            raise RunError(self._failure)

    @contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """Return a context in which this thread calls NCCL for ``what``, watched for calls that do not return.

        An NcclError in the context is recorded as a failure; RunError with the first recorded failure is raised.
        """
        self._call = (what, time.monotonic())
        try:
            yield
        except NcclError as error:
            self.fail(f"{what}: {error}")
            self.raise_if_failed()
        finally:
            self._call = None

    def fail(self, text: str) -> None:
        """Record the failure ``text`` and abort the communicators. Only the first call has an effect.

        Any thread may call it.
        """
        with self._lock:
            if self._failure is not None:
                return
            self._failure = text if text.startswith("[rank ") else f"{self._prefix} {text}"
            self._escalation = threading.Timer(
                ESCALATION_SECONDS,
                self._give_up,
                (f"{self._failure}; NCCL did not return within {ESCALATION_SECONDS:g} s",),
            )
            self._escalation.daemon = True
            self._escalation.start()
        try:
            self._cliques.abort()
        except NcclError:  # the first failure is the one to report
            return

    def settle(self) -> None:
        """Cancel the escalation. The thread that issues work calls it once it is no longer blocked in NCCL."""
        if self._escalation is not None:
            self._escalation.cancel()

    def stop(self) -> None:
        """Stop the thread. The wait for it is limited, because an abort of NCCL may never return."""
        self._ends.set()
        self._thread.join(_STOP_SECONDS)

    def _look_on(self) -> None:
        """Poll until the watchdog is stopped or a failure is recorded (the body of the thread)."""
        while not self._ends.wait(PERIOD_SECONDS) and self._failure is None:
            self._look_at_comms()
            call = self._call
            if call is not None and time.monotonic() - call[1] > self._timeout:
                self.fail(f"{call[0]}: the call of NCCL has not returned for {self._timeout:g} s")

    def _look_at_comms(self) -> None:
        """Record a failure if the asynchronous state of a communicator is an error."""
        try:
            for comm, state in self._cliques.states():
                if state not in (NcclResult.SUCCESS, NcclResult.IN_PROGRESS):
                    self.fail(f"{self._oldest()}: NCCL: {self._api.describe(comm, state)}")
                    return
        except NcclError as error:
            self.fail(f"{self._oldest()}: {error}")
