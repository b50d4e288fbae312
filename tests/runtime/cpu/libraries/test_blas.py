"""Devices that share a machine multiply with one BLAS thread each."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.cpu.libraries.blas import (
    BlasThreads,
    blas_threads,
    reserve_work_buffers,
    set_blas_threads,
)
from runtime.cpu.step.thread_team import ThreadTeam
from tests.runtime.programs import COLLECTIVES, compiled, random_inputs


def test_threads_are_limited_within_the_block() -> None:
    before = blas_threads()
    if before is None:
        pytest.skip("NumPy's BLAS does not tell its number of threads")
    try:
        set_blas_threads(2)
        with BlasThreads(1):
            assert blas_threads() == 1
        assert blas_threads() == 2
    finally:
        set_blas_threads(before)


def test_loopback_devices_run_with_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    before = blas_threads()
    if before is None:
        pytest.skip("NumPy's BLAS does not tell its number of threads")
    seen = []
    original = ThreadTeam.run

    def run(self: ThreadTeam) -> None:
        seen.append(blas_threads())
        original(self)

    monkeypatch.setattr(ThreadTeam, "run", run)
    executable = compiled(COLLECTIVES)
    try:
        set_blas_threads(2)
        executable.run_devices([random_inputs(executable.module, d) for d in range(4)])
        assert blas_threads() == 2
    finally:
        set_blas_threads(before)
    assert seen == [1]


def test_work_buffers_are_there_for_so_many_callers_and_free_again() -> None:
    first = reserve_work_buffers(3)
    assert first in (0, 3)  # 0: this BLAS cannot be told
    assert reserve_work_buffers(3) == first
    one = np.arange(64.0).reshape(8, 8)
    assert np.array_equal(one @ np.eye(8), one)
