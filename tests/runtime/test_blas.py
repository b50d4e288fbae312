"""Devices that share a machine multiply with one BLAS thread each."""

from __future__ import annotations

import pytest

from runtime.blas import blas_threads, limited_blas_threads, set_blas_threads


def test_threads_are_limited_within_the_block() -> None:
    before = blas_threads()
    if before is None:
        pytest.skip("NumPy's BLAS does not tell its number of threads")
    try:
        set_blas_threads(2)
        with limited_blas_threads(1):
            assert blas_threads() == 1
        assert blas_threads() == 2
    finally:
        set_blas_threads(before)
