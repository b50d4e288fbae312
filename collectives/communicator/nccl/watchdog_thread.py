"""A thread that looks after NCCL: errors that it finds later, calls of it that do not come back, and how all that ends.

The thread that issues work may itself stand in a call of NCCL or CUDA that waits for a peer; so the one that looks is
another. It sleeps between looks, and looks are calls that do not wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collectives.communicator.nccl.api import NcclApi, NcclError, NcclResult
from collectives.communicator.nccl.group_communicators import Cliques
from spmd.errors import RunError

PERIOD_SECONDS = 0.1

_STOP_SECONDS = 5.0

ESCALATION_SECONDS = 20.0
"""For NCCL to let go of what was aborted; then the process ends."""


class NcclWatch:
    """oldest: what is in flight. give_up: ends this process with a message, where NCCL does not let go of a thread."""

    def __init__(
        self,
        api: NcclApi,
        cliques: Cliques,
        prefix: str,
        timeout_seconds: float,
        give_up: Callable[[str], None],
        oldest: Callable[[], str],
    ) -> None:
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

    def raise_if_failed(self) -> None:
        if self._failure is not None:
            self.settle()
            raise RunError(self._failure)

    @contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """NCCL is called for ``what``. What it raises after a failure is that failure."""
        self._call = (what, time.monotonic())
        try:
            yield
        except NcclError as error:
            self.fail(f"{what}: {error}")
            self.raise_if_failed()
        finally:
            self._call = None

    def fail(self, text: str) -> None:
        """Abort NCCL's communicators; ``text`` is why, unless there was a reason before. From any thread."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = text if text.startswith("[rank ") else f"{self._prefix} {text}"
            self._escalation = threading.Timer(
                ESCALATION_SECONDS,
                self._give_up,
                (f"{self._failure}; NCCL did not let go of it within {ESCALATION_SECONDS:g} s",),
            )
            self._escalation.daemon = True
            self._escalation.start()
        try:
            self._cliques.abort()
        except NcclError:  # it has said enough
            return

    def settle(self) -> None:
        """The thread that issues work has got away from NCCL."""
        if self._escalation is not None:
            self._escalation.cancel()

    def stop(self) -> None:
        """Before communicators are destroyed. The thread may stand in an abort that does not come back."""
        self._ends.set()
        self._thread.join(_STOP_SECONDS)

    def _look_on(self) -> None:
        while not self._ends.wait(PERIOD_SECONDS) and self._failure is None:
            self._look_at_comms()
            call = self._call
            if call is not None and time.monotonic() - call[1] > self._timeout:
                self.fail(f"{call[0]}: NCCL's call has not come back for {self._timeout:g} s")

    def _look_at_comms(self) -> None:
        try:
            for comm, state in self._cliques.states():
                if state not in (NcclResult.SUCCESS, NcclResult.IN_PROGRESS):
                    self.fail(f"{self._oldest()}: NCCL: {self._api.describe(comm, state)}")
                    return
        except NcclError as error:
            self.fail(f"{self._oldest()}: {error}")
