"""Errors of GPUs."""

from __future__ import annotations

from spmd.errors import RunError, UnsupportedError


class NoGpuError(UnsupportedError):
    """A GPU was requested, but this machine or environment has no usable one."""


class GpuMemoryError(RunError):
    """A program needs more of a GPU's memory than is free."""


class PtxError(RunError):
    """CUDA rejects a PTX text."""


class GpuFailedError(RunError):
    """Work on a GPU failed; this process cannot use the device any more."""


class GpuLibraryError(RunError):
    """A library of the GPU has no function for what a program needs, or fails to start."""
