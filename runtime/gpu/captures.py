"""Lock per GPU for captures of graphs, and for the calls that CUDA refuses while another thread captures.

Devices of one process may share a GPU, each with a thread. While one captures a graph, a call of another that waits
for the whole device, or works on CUDA's default stream, fails and invalidates the capture
(cudaErrorStreamCaptureUnsupported).
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class CaptureLock:
    """Re-entrant lock that also frees memory as soon as no thread holds it.

    Freeing waits for the device, and may happen during a capture because objects end anywhere: ``free`` never waits.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._ended: deque[object] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        self._lock.release()
        self._free_ended()

    def free(self, memory: object) -> None:
        """Drop what may be the last reference to ``memory``, now or when the lock is left."""
        self._ended.append(memory)
        self._free_ended()

    def _free_ended(self) -> None:
        # Each holder of the lock calls this after leaving it, so memory that is appended meanwhile
        # is freed.
        while self._ended and self._lock.acquire(blocking=False):
            try:
                if self._depth:  # this thread's own capture
                    return
                self._ended.clear()
            finally:
                self._lock.release()
