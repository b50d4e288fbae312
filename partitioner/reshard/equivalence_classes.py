"""EquivalenceClasses: which things are equal, as equalities come in (a union-find)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class EquivalenceClasses(Generic[Item]):
    """Classes of equal items; an item that was never tied is a class of its own."""

    def __init__(self) -> None:
        self._parent: dict[Item, Item] = {}

    def find(self, item: Item) -> Item:
        """The item that stands for the class of ``item``."""
        while item in self._parent:
            item = self._parent[item]
        return item

    def tie(self, a: Item, b: Item) -> bool:
        """Make two items equal; False where they are already."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self._parent[a] = b
        return True
