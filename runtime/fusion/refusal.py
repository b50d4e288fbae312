"""Error for instructions that no emitter can compute in one kernel."""

from __future__ import annotations

from spmd.errors import UnsupportedError


class NoEmitterError(UnsupportedError):
    """Raised if no emitter can compute the instructions in one kernel. The message gives the reason."""
