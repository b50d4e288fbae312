"""Figures in reports on a terminal."""

from __future__ import annotations

_BAR = 40


def bar(part: float, total: float, length: int = _BAR) -> str:
    """Return a bar of ``length`` characters, filled in proportion to ``part`` of ``total``."""
    filled = round(length * part / total) if total else 0
    filled = min(max(filled, 0), length)
    return "█" * filled + "·" * (length - filled)


def percent(part: float, total: float) -> str:
    """Return the share of ``part`` in per cent. A small negative one is 0.0, not -0.0."""
    return f"{round(100 * part / total, 1) + 0.0:.1f} %" if total else "0 %"


def size_text(size: int) -> str:
    """Return the bytes with three digits and a fitting unit."""
    unit, factor = next(
        ((u, f) for u, f in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if size >= f), ("B", 1.0)
    )
    return f"{size / factor:.3g} {unit}"
