"""Random choices of generators of programs. The same generator gives the same choices, so seeds stand for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Dice:
    """Random choices, for classes that have a random generator ``rng``."""

    rng: np.random.Generator

    def chance(self, p: float = 0.5) -> bool:
        return bool(self.rng.random() < p)

    def integer(self, low: int, high: int) -> int:
        """Return a random integer from [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def choose(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return [items[i] for i in self.rng.permutation(len(items))]

    def some(self, items: Sequence[T], at_least: int = 0) -> list[T]:
        """A random part of ``items``, in order."""
        count = self.integer(min(at_least, len(items)), len(items))
        return [items[int(i)] for i in sorted(self.rng.permutation(len(items))[:count])]
