"""Count of what a proto implies without spelling it out, so that a few bytes cannot cost much again and again."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.limits import MAX_IMPLIED


class Implied:
    """One count for all of one proto."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, count: int, what: str) -> None:
        """Count implied values. Raises HloParseError if the proto implies more than ``MAX_IMPLIED`` of them."""
        self._count += count
        if self._count > MAX_IMPLIED:
            raise HloParseError(f"{what}: the proto implies more than {MAX_IMPLIED} values")
