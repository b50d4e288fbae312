"""The pass that fuses: which instructions become one kernel, by what it saves on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime.fusion.fusion_graph import FusionGraph, Limits
from runtime.fusion.live_profile import LiveProfile
from runtime.fusion.make_fusions import make_fusions
from runtime.fusion.merging import merge_kernels
from runtime.fusion.priority_queue import fuse_producers
from runtime.schedule.exact_memory import step_facts
from runtime.schedule.memory_scheduler import rank_orders, stand_in_order
from runtime.schedule.module_model import ModuleModel
from spmd.hlo import HloComputation, HloInstruction, HloModule, Stage
from spmd.hlo.clone import clone_module
from spmd.machine.named import DEFAULT, machine_named
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class PriorityFusion(FueledPass):
    """Make fusions where one kernel takes less time than several, on the machine of that name.

        a = f32[1024] exponential(x)
        b = f32[1024] add(a, y)            =>  b = f32[1024] fusion(x, y), kind=kLoop, calls={add(exponential(x), y)}

    First producers go into all of their readers, the one that saves most first, copied where that pays; then kernels
    that read the same, or one of which reads the other, become one with several results; then small ones of equal sizes
    (``horizontal``). Every computation that runs by itself is done alone, in an order that the memory scheduler likes:
    live bytes do not rise above the peak that they have there. docs/fusion.md says how time is estimated.

    Instructions with control edges, side effects, other memory spaces or dynamic sizes stay as they are, and so do
    modules with an operation that the runtime does not run.
    """

    name: ClassVar[str] = "priority-fusion"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    machine: str = DEFAULT
    duplicate: bool = True
    multi_output: bool = True
    horizontal: bool = True
    max_instructions: int = 64
    max_inputs: int = 24
    max_results: int = 12

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        made = 0
        for graph, profile in self._graphs(module):
            fuse_producers(graph, profile, duplicate=self.duplicate)
            if self.multi_output:
                merge_kernels(graph, profile, horizontal=self.horizontal)
            made += make_fusions(graph, fuel)
        if made:
            module.computations = module.computations_post_order()
        return bool(made)

    def _graphs(self, module: HloModule) -> list[tuple[FusionGraph, LiveProfile]]:
        """Of every computation that runs by itself, callees first."""
        copy = clone_module(module)
        stand_in_order(copy)
        facts = step_facts(copy)
        if facts is None:
            return []
        models = ModuleModel(copy, facts)
        ranked = rank_orders(models)
        ours = ModuleModel(module, facts.on(module), _peaks(module, models))
        graphs = []
        for computation, theirs, orders in zip(
            ours.computations, models.computations, ranked, strict=True
        ):
            order = _named(computation, theirs, orders[0])
            limits = Limits(
                self.max_instructions, 2 * self.max_instructions, self.max_inputs, self.max_results
            )
            graph = FusionGraph(computation, order, ours.facts, machine_named(self.machine), limits)
            graphs.append((graph, LiveProfile(graph, ours.of(computation))))
        return graphs


def _peaks(module: HloModule, models: ModuleModel) -> dict[HloComputation, int]:
    """What the copy's computations need, by the module's own."""
    by_name = {computation.name: computation for computation in module.computations}
    return {by_name[theirs.name]: peak for theirs, peak in models.peaks.items()}


def _named(
    computation: HloComputation, copy: HloComputation, permutation: Sequence[int]
) -> list[HloInstruction]:
    """The order of a copy's instructions as that of its original's."""
    by_name = {x.name: x for x in computation.instructions}
    stored = copy.instructions
    return [by_name[stored[n].name] for n in permutation]
