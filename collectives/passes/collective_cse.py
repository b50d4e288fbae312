"""Passes that make a collective of another one, which moves another form of the same value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.rewrite import builder_at


class Collective(Protocol):
    @property
    def instruction(self) -> HloInstruction: ...


C = TypeVar("C", bound=Collective)


class RetainedCollectives(ABC, Generic[C]):
    """Collectives of one computation that stay."""

    @abstractmethod
    def add(self, collective: C) -> None: ...

    @abstractmethod
    def derive(self, collective: C, b: Builder) -> HloInstruction | None:
        """Return the result of ``collective``, computed from collectives that stay. Returns None, and builds nothing,
        if that is impossible.
        """


class CollectiveCse(FueledPass, Generic[C]):
    """A pass that derives each collective, in the order of ``rank``, from earlier ones if possible.

    What a collective is made of another one for is a form of a value that both have in common, and this other one needs
    nothing but that value: so there is no cycle, in whichever order they stand.
    """

    @abstractmethod
    def match(self, x: HloInstruction) -> C | None:
        """Return the collective. Returns None for other instructions, and for collectives that have to stay."""

    @abstractmethod
    def rank(self, collective: C) -> tuple[int, ...]:
        """Return a key that is smaller for collectives from which more others can be derived."""

    @abstractmethod
    def empty_state(self) -> RetainedCollectives[C]:
        """Return the empty state at the begin of a computation."""

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope = ModuleScope(module)
        changed = False
        for computation in module.computations_post_order():
            changed |= self._merge_in(computation, scope, fuel)
        return changed

    def _merge_in(self, computation: HloComputation, scope: ModuleScope, fuel: Fuel) -> bool:
        found = [one for x in computation.post_order() if (one := self.match(x)) is not None]
        retained, changed = self.empty_state(), False
        for one in sorted(found, key=self.rank):
            if fuel.is_spent:
                break
            same = retained.derive(one, builder_at(one.instruction, scope))
            if same is None:
                retained.add(one)
                continue
            fuel.burn()
            computation.replace(one.instruction, same)
            changed = True
        return changed
