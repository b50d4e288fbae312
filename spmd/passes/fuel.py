"""Passes that can be stopped after any number of rewrites, so that a wrong one can be found by bisection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TypeVar

from spmd.hlo.module import HloModule
from spmd.passes.interface import HloPass

T = TypeVar("T")


class Fuel:
    """A counter of rewrites. ``limit``: the most rewrites, None for any number."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.spent = 0

    @property
    def is_spent(self) -> bool:
        return self.limit is not None and self.spent >= self.limit

    def burn(self) -> None:
        """Count one rewrite."""
        assert not self.is_spent
        self.spent += 1

    def enough_for(self, sites: Iterable[T]) -> Iterator[T]:
        """Yield ``sites``, and count a rewrite for each, until the fuel is spent."""
        for site in sites:
            if self.is_spent:
                return
            self.burn()
            yield site


class FueledPass(HloPass):
    """A pass made of single rewrites, each of which leaves a valid module that means what it meant.

    ``rewrite`` asks ``fuel.is_spent`` before it looks for another one, and burns one unit for each that it makes. With
    the same module and less fuel it makes the same rewrites, as far as the fuel goes.
    """

    def run(self, module: HloModule) -> bool:
        return self.rewrite(module, Fuel())

    @abstractmethod
    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        """Run the pass and stop after `fuel.limit` rewrites. Returns whether the module changed."""
