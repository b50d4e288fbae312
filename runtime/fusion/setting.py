"""The module in which kernels are planned: an order of each computation, and the memory that it takes there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runtime.fusion.make_fusions import FusionPlan, make_fusions
from runtime.schedule.exact_memory import device_bytes, step_facts
from runtime.schedule.memory_scheduler import stand_in_order
from runtime.schedule.module_model import ModuleModel
from spmd.hlo import HloComputation, HloInstruction, HloModule, Stage
from spmd.hlo.clone import clone_module
from spmd.passes.fuel import Fuel


@dataclass(frozen=True)
class Setting:
    """order_of: the schedule where there is one, else the stored order as far as it can run. bytes: what a device holds
    of it.
    """

    module: HloModule
    models: ModuleModel
    order_of: Mapping[HloComputation, Sequence[HloInstruction]]
    bytes: int

    @staticmethod
    def of(module: HloModule) -> Setting | None:
        """None for a module that the runtime does not run."""
        copy = clone_module(module)
        if copy.stage < Stage.SCHEDULED:
            stand_in_order(copy)
        facts = step_facts(copy)
        if facts is None:
            return None
        theirs = {computation.name: computation for computation in copy.computations}
        models = ModuleModel(module, facts.on(module))
        order_of = {ours: _as_in(theirs[ours.name], ours) for ours in models.computations}
        for ours in models.computations:
            models.peaks[ours] = models.of(ours).peak(order_of[ours])
        return Setting(module, models, order_of, device_bytes(copy))

    def holds(self, plans: Iterable[FusionPlan]) -> bool:
        """Whether the planned kernels take no more memory than the module does: tried on a copy."""
        copy = clone_module(self.module)
        named = {x.name: x for x in copy.all_instructions()}
        computations = {c.name: c for c in copy.computations}
        for plan in plans:
            make_fusions(plan.on(computations[plan.computation.name], named), Fuel())
        copy.computations = copy.computations_post_order()
        if copy.stage < Stage.SCHEDULED:
            stand_in_order(copy)
        return device_bytes(copy) <= self.bytes


def _as_in(copy: HloComputation, original: HloComputation) -> list[HloInstruction]:
    named = {x.name: x for x in original.instructions}
    return [named[x.name] for x in copy.instructions]
