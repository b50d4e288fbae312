"""What a device's calls raise, as errors of the run that say where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.gpu.driver import GpuDriver
from runtime.gpu.errors import GpuFailedError


@contextmanager
def failures_of(driver: GpuDriver, what: str) -> Iterator[None]:
    """GpuFailedError, which names ``what``, for the driver's own errors."""
    try:
        yield
    except driver.failures as error:
        raise GpuFailedError(f"{what} on {driver.name}: {error}") from error
