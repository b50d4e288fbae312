"""The time limit of the test that runs, watched by one thread for all tests of a process.

pytest-timeout starts a thread for each test and waits for its end: a millisecond, ten seconds in ten thousand tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _Limit:
    """When (of time.monotonic) a test has taken too long, and what to do then."""

    end: float
    exceed: Callable[[], None]


class TimeLimit:
    """Watches the test that runs. ``interval``: seconds from one look to the next."""

    def __init__(self, interval: float = 1.0) -> None:
        self._interval = interval
        self._limit: _Limit | None = None
        self._thread: threading.Thread | None = None

    def begin(self, seconds: float, exceed: Callable[[], None]) -> None:
        """Call ``exceed`` in another thread once ``seconds`` have passed, unless ``end`` is called before."""
        self._limit = _Limit(time.monotonic() + seconds, exceed)
        if self._thread is None or not self._thread.is_alive():  # a forked process has none
            self._thread = threading.Thread(target=self._watch, name="time limit", daemon=True)
            self._thread.start()

    def end(self) -> bool:
        """Stop watching. Returns whether there was anything to watch."""
        watched, self._limit = self._limit is not None, None
        return watched

    def _watch(self) -> None:
        while True:
            time.sleep(self._interval)
            limit = self._limit
            if limit is not None and time.monotonic() > limit.end:
                self._limit = None
                limit.exceed()


_OF_THE_TEST = TimeLimit()


def begin(item: Any, settings: Any) -> bool | None:
    """Implement pytest-timeout's ``pytest_timeout_set_timer``: None leaves signals to the plugin."""
    import pytest_timeout

    if settings.method != "thread":
        return None
    _OF_THE_TEST.begin(settings.timeout, lambda: pytest_timeout.timeout_timer(item, settings))
    return True


def end() -> bool | None:
    """Implement ``pytest_timeout_cancel_timer``: None where the plugin may have a timer of its own."""
    return _OF_THE_TEST.end() or None
