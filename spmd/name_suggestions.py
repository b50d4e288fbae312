"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the nearest of ``known`` as "; did you mean ...?"; "" if none is near."""
    import difflib  # deferred: needed for mistyped names only

    nearest = difflib.get_close_matches(name, sorted(set(known)), 1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
