"""Conversion of a GPU driver's exceptions to run errors that name the operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.gpu.driver import GpuDriver
from runtime.gpu.errors import GpuFailedError


@contextmanager
def failures_of(driver: GpuDriver, what: str) -> Iterator[None]:
    """Replace exceptions of ``driver.failures`` in the managed block by a GpuFailedError that names ``what``."""
    try:
        yield
    except driver.failures as error:
        raise GpuFailedError(f"{what} on {driver.name}: {error}") from error
