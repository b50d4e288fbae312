"""Errors of GPUs."""

from __future__ import annotations

from spmd.errors import RunError, UnsupportedError


class NoGpuError(UnsupportedError):
    """A GPU was asked for, and this machine or this environment has none that can be used."""


class GpuMemoryError(RunError):
    """A program takes more of a GPU's memory than is free."""


class PtxError(RunError):
    """A text of PTX that CUDA does not take."""


class GpuFailedError(RunError):
    """Work on a GPU failed; the device is of no more use to this process."""
