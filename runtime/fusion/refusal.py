"""Error for instructions that no emitter takes."""

from __future__ import annotations

from spmd.errors import UnsupportedError


class NoEmitterError(UnsupportedError):
    """No emitter makes one kernel of these instructions; the message gives the reason."""
