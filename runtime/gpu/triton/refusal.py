"""Error for fusions that no Triton kernel computes."""

from __future__ import annotations

from spmd.errors import UnsupportedError


class NoTritonKernelError(UnsupportedError):
    """Raised if no Triton kernel computes a fusion. The message gives the reason."""
