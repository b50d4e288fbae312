"""Equivalence classes of items under incoming equalities (union-find)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class EquivalenceClasses(Generic[Item]):
    """Classes of equal items. An item without equalities is a class of its own."""

    def __init__(self) -> None:
        self._parent: dict[Item, Item] = {}

    def find(self, item: Item) -> Item:
        """Return the representative of the class of ``item``."""
        while item in self._parent:
            item = self._parent[item]
        return item

    def union(self, a: Item, b: Item) -> bool:
        """Make two items equal. Returns whether they were not equal before."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self._parent[a] = b
        return True
