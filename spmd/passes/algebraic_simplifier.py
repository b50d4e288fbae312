"""Apply the identities of spmd/passes/algebraic until none applies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.errors import VerificationError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.checks import same_type
from spmd.ops.inference import describe
from spmd.passes.algebraic.rules import IDENTITIES
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import is_annotated, is_pinned, replace_and_prune

#: Most rewrites per computation, as a multiple of its size: identities shrink the program, so it would be met only by
#: two that undo each other (a test holds that there are none).
_MAX_REWRITES = 20


@register_pass
@dataclass(frozen=True)
class AlgebraicSimplifier(FueledPass):
    """Rewrite by identities that keep every bit, or that docs/numerics.md lists.

    A work list starts with all instructions in post-order; what a rewrite made or touched comes back onto it.
    """

    name: ClassVar[str] = "algebraic-simplifier"

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope, effects = ModuleScope(module), SideEffects()
        changed = False
        for computation in module.computations_post_order():
            changed |= _Simplification(computation, scope, effects, fuel).run(
                _MAX_REWRITES * (len(computation) + 10)
            )
        return changed


class _Recorder(Builder):
    """A builder that remembers what it made since it was last asked."""

    def __init__(self, computation: HloComputation, scope: ModuleScope) -> None:
        super().__init__(computation, scope)
        self._made: list[HloInstruction] = []

    def create(self, *args: object, **kwargs: object) -> HloInstruction:
        made = super().create(*args, **kwargs)  # type: ignore[arg-type]
        self._made.append(made)
        return made

    def pop_made(self) -> list[HloInstruction]:
        made, self._made = self._made, []
        return made


class _Simplification:
    """One computation being simplified: the work list and the builder."""

    def __init__(
        self,
        computation: HloComputation,
        scope: ModuleScope,
        effects: SideEffects,
        fuel: Fuel,
    ) -> None:
        self._builder = _Recorder(computation, scope)
        self._effects = effects
        self._fuel = fuel
        self._work: deque[HloInstruction] = deque()
        self._waiting: set[int] = set()
        self._push(computation.post_order())

    def _push(self, instructions: Iterable[HloInstruction]) -> None:
        for x in instructions:
            if id(x) not in self._waiting and x.parent is not None:
                self._waiting.add(id(x))
                self._work.append(x)

    def run(self, budget: int) -> bool:
        rewrites = 0
        while self._work and rewrites < budget and not self._fuel.is_spent:
            x = self._work.popleft()
            self._waiting.discard(id(x))
            if x.parent is None or (is_pinned(x) and not is_plain_result(x)):
                continue
            rewrites += self._rewrite(x)
        return rewrites > 0

    def _rewrite(self, x: HloInstruction) -> bool:
        self._builder.annotations = Annotations(metadata=x.annotations.metadata)
        for identity in IDENTITIES.get(x.opcode, ()):
            simpler = identity(x, self._builder)
            if simpler is None:
                continue
            if not same_type(simpler.shape, x.shape):
                raise VerificationError(
                    f"{identity.__name__} made {simpler.shape} of: {describe(x)}"
                )
            if is_annotated(x):
                simpler = self._as_result(simpler, x)
            self._fuel.burn()
            touched = replace_and_prune(x, simpler, self._effects)
            # Rules may require an operand without other users: an instruction that is now the only user comes back.
            alone = [user for one in touched if one.num_users == 1 for user in one.users]
            self._push((*self._builder.pop_made(), simpler, *simpler.users, *touched, *alone))
            return True
        return False

    def _as_result(self, simpler: HloInstruction, old: HloInstruction) -> HloInstruction:
        """Return `simpler` with the sharding of the program's result `old`, or a copy if it has one of its own."""
        if is_annotated(simpler) or simpler.opcode is Opcode.PARAMETER:
            if simpler.sharding == old.sharding:
                return simpler
            simpler = self._builder.copy(simpler)
        simpler.sharding = old.sharding
        return simpler


def is_plain_result(x: HloInstruction) -> bool:
    """Return whether `x` is the result of a partitioned program, whose sharding another value can state as well."""
    module = x.parent.module if x.parent is not None else None
    return (
        module is not None
        and module.stage >= Stage.PARTITIONED
        and x is module.entry.root
        and x.opcode is not Opcode.COPY
        and x.annotations.frontend("xla.sdy.sharding") is None
        and not x.has_control_edges
    )
