"""Values by number: each stands once, in the order in which they came."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)


class Table(Generic[Value]):
    """Values that the page stores once. ``add`` returns the index of a value in ``rows``."""

    def __init__(self) -> None:
        self.rows: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def add(self, value: Value) -> int:
        number = self._numbers.setdefault(value, len(self.rows))
        if number == len(self.rows):
            self.rows.append(value)
        return number
