"""Groups of ranks that meet in a collective, and their text in messages."""

from __future__ import annotations

from typing import TypeAlias

from spmd.errors import RunError

Group: TypeAlias = tuple[int, ...]
"""Distinct ranks; their order gives each member its index."""


def describe_group(group: Group) -> str:
    """Return ranks as a text: all of a short group, the ends of a long one."""
    if len(group) <= 16:
        return "{" + ",".join(map(str, group)) + "}"
    return f"{{{group[0]},{group[1]},...,{group[-1]}}} ({len(group)} ranks)"


def require_in(rank: int, group: Group, name: str) -> None:
    """Raise RunError if ``rank`` is no member of the ``group`` that runs the collective ``name``."""
    if rank not in group:
        raise RunError(f"{name}: rank {rank} is not in group {describe_group(group)}")
