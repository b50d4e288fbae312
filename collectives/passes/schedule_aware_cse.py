"""Equal collectives, if the first result is used shortly before the second one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from spmd.analysis.live_bytes import ModuleBytes
from spmd.analysis.side_effects import SideEffects
from spmd.analysis.structure import StructuralKeys
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.lazy_dataclass import dataclass
from spmd.passes.common_subexpression_elimination import is_mergeable, value_key
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class ScheduleAwareCse(FueledPass):
    """Use a collective's result again for an equal one shortly after its last use.

        g = all-gather(w)                 g = all-gather(w)
        a = dot(x, g)               =>    a = dot(x, g)
        h = all-gather(w)                 b = dot(y, g)
        b = dot(y, h)

    Weights that are gathered again for the backward computation stay apart: they are gathered twice so that they do not
    stay in memory. ``distance``: the most instructions between the last use and the second collective.
    ``memory-limit``: the most live bytes of a device (0: any number).
    """

    name: ClassVar[str] = "schedule-aware-cse"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.SCHEDULED,)
    distance: int = 80
    memory_limit: int = 0

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        live = ModuleBytes.of(module)
        budgets = live.budgets(self.memory_limit) if self.memory_limit else {}
        changed = False
        for computation in live.buffers:
            joining = _Joining(computation, live, budgets.get(computation))
            changed |= joining.run(self.distance, fuel)
        return changed


class _Joining:
    """Joins of equal collectives in one computation. ``budget``: bytes that it may need, None for any number."""

    def __init__(self, computation: HloComputation, live: ModuleBytes, budget: int | None) -> None:
        self._computation = computation
        self._order = computation.instructions
        self._position = {x: n for n, x in enumerate(self._order)}
        self._budget = budget
        self._needs = live.look(computation) if budget is not None else []

    def run(self, distance: int, fuel: Fuel) -> bool:
        effects, structure = SideEffects(), StructuralKeys()
        latest: dict[Hashable, HloInstruction] = {}
        changed = False
        for x in self._order:
            if x.opcode not in KIND or not is_mergeable(x, effects):
                continue
            key = value_key(x, [self._position[operand] for operand in x.operands], structure)
            earlier = latest.get(key)
            if earlier is None or fuel.is_spent or not self._may_join(earlier, x, distance):
                latest[key] = x
                continue
            fuel.burn()
            self._join(earlier, x)
            changed = True
        return changed

    def _last_use(self, x: HloInstruction) -> int:
        if x.is_root:
            return len(self._order)
        return max([self._position[x], *(self._position[user] for user in x.users)])

    def _stretch(self, earlier: HloInstruction, x: HloInstruction) -> range:
        """Return the positions at which the earlier result is dead but would have to stay live."""
        return range(self._last_use(earlier) + 1, self._position[x])

    def _may_join(self, earlier: HloInstruction, x: HloInstruction, distance: int) -> bool:
        stretch = self._stretch(earlier, x)
        if len(stretch) > distance:
            return False
        if self._budget is None:
            return True
        most = self._budget - earlier.shape.byte_size
        return all(self._needs[n] <= most for n in stretch)

    def _join(self, earlier: HloInstruction, x: HloInstruction) -> None:
        if self._budget is not None:
            for n in self._stretch(earlier, x):
                self._needs[n] += earlier.shape.byte_size
        self._computation.replace(x, earlier)
