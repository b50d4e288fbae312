"""matplotlib, which is optional: the ``plot`` extra."""

from __future__ import annotations

from spmd.errors import UnsupportedError


def require_matplotlib(what: str, instead: str = "") -> None:
    """Raise UnsupportedError if matplotlib is not installed.

    what: the thing that needs it. instead: what to do without it.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        advice = f"; {instead}" if instead else ""
        raise UnsupportedError(
            f'{what} needs matplotlib: pip install "spmd-executor[plot]"{advice}'
        ) from None
