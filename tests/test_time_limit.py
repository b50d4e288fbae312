"""The thread that watches the time limits of tests: who exceeds one is told, who ends before is not."""

from __future__ import annotations

import threading
import time

import pytest

from tests import time_limit
from tests.time_limit import TimeLimit


def test_a_limit_that_is_exceeded_acts_once() -> None:
    limit, exceeded = TimeLimit(0.001), threading.Semaphore(0)
    limit.begin(0.005, exceeded.release)
    assert exceeded.acquire(timeout=60)
    assert not limit.end()
    assert not exceeded.acquire(timeout=0.02)


def test_what_ends_in_time_is_left_alone() -> None:
    limit, exceeded = TimeLimit(0.001), threading.Event()
    limit.begin(0.01, exceeded.set)
    assert limit.end()
    assert not exceeded.wait(0.03)
    limit.begin(300, exceeded.set)
    assert not exceeded.wait(0.01)
    assert limit.end()


def test_this_test_is_watched(request: pytest.FixtureRequest) -> None:
    limit = time_limit._OF_THE_TEST._limit
    assert limit is not None
    seconds = request.config.getvalue("timeout") or float(request.config.getini("timeout"))
    assert time.monotonic() < limit.end <= time.monotonic() + seconds
    assert not hasattr(request.node, "cancel_timeout"), "pytest-timeout has no timer beside it"
