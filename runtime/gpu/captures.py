"""Lock of a GPU for graph captures, and for the calls that CUDA rejects while another thread captures.

Devices of one process may share a GPU; each device has its own thread. While one thread captures a graph, a call from
another thread that waits for the whole GPU, or uses CUDA's default stream, fails and invalidates the capture
(cudaErrorStreamCaptureUnsupported).
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class CaptureLock:
    """Re-entrant lock that also defers the release of GPU memory until no thread holds it.

    Freeing GPU memory waits for the whole GPU, which is not allowed during a capture. A garbage-collected object may
    be finalized at any time, so ``free`` never blocks: it queues the memory.
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
        """Release a reference to ``memory``, possibly the last one: now, or when the lock is next released."""
        self._ended.append(memory)
        self._free_ended()

    def _free_ended(self) -> None:
        # If another thread holds the lock, acquire fails here; that thread calls this function after
        # it has released the lock, and frees what was appended meanwhile.
        while self._ended and self._lock.acquire(blocking=False):
            try:
                if self._depth:  # this thread's own capture
                    return
                self._ended.clear()
            finally:
                self._lock.release()
