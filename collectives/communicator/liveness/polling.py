"""Wait by polling for something that is not announced, without taking the core from the process waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_SPINS_BEFORE_SLEEP = 50  # some 150 us; more takes the cores from the ranks that are waited for
_SLEEP_SECONDS = 50e-6


def poll_until(done: Callable[[], bool], seconds: float) -> bool:
    """Ask ``done`` until it says True; False after ``seconds``."""
    deadline = time.monotonic() + seconds
    return poll_while(done, lambda: time.monotonic() <= deadline)


def poll_while(done: Callable[[], bool], has_hope: Callable[[], bool]) -> bool:
    """Ask ``done`` until it says True; False as soon as there is no hope, which is asked each time it has slept.

    Yields the core at once and soon sleeps: ranks may outnumber cores, and the one that all wait for needs one.
    """
    spins = 0
    while not done():
        spins += 1
        if spins < _SPINS_BEFORE_SLEEP:
            os.sched_yield()
            continue
        time.sleep(_SLEEP_SECONDS)
        if not has_hope():
            return False
    return True


def ask_while(done: Callable[[], bool], has_hope: Callable[[], bool]) -> bool:
    """The same where ``done`` itself sleeps for a while."""
    while not done():
        if not has_hope():
            return False
    return True
