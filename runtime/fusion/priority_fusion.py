"""Fuse instructions into kernels, in the order of the time that each fusion saves on a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import ClassVar

from runtime.fusion.collective_sides import CollectiveSides
from runtime.fusion.context import FusionContext
from runtime.fusion.cost.cost_model import CostModel
from runtime.fusion.fusion_graph import FusionGraph, Limits
from runtime.fusion.indexed.indexed_kernels import indices_fused
from runtime.fusion.kernel_kinds import KernelCosts, KernelKinds
from runtime.fusion.live_profile import LiveProfile
from runtime.fusion.make_fusions import FusionPlan, make_fusions
from runtime.fusion.merging import merge_kernels
from runtime.fusion.priority_queue import fuse_producers, fuse_regions
from runtime.fusion.products.epilogues import (
    ProductPlans,
    is_library_kernel,
    library_kernels,
    products_taken,
    sums_read_again,
)
from runtime.fusion.products.narrow_results import narrow_results
from spmd.hlo import HloInstruction, HloModule, Stage
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import MACHINE_OPTION, register_pass

#: Headrooms that are tried in turn if a plan needs more memory than the module. With the last one,
#: fusions do not increase live bytes anywhere.
HEADROOMS = (0.15, 0.4, 1.0)


@register_pass
@dataclass(frozen=True)
class PriorityFusion(FueledPass):
    """Make fusions where one kernel takes less time than several, by the cost model of ``machine``.

        a = f32[1024] exponential(x)
        b = f32[1024] add(a, y)            =>  b = f32[1024] fusion(x, y), kind=kLoop, calls={add(exponential(x), y)}

    The pass fuses in four stages. Elementwise regions become kernels. Producers are fused into all of their readers,
    the one that saves most first, and are duplicated if that pays. Kernels that share an input, or one of which reads
    the other, become one kernel with several results, and so do small kernels of equal sizes (``horizontal``). Matrix
    products join a kernel that reads them, and read slices in place (``products``); on a GPU they join what a library
    computes in the same call. Gathers and scatters compute their indices.

    Every scheduled computation is planned by itself, within its current order, which should be its schedule. A kernel
    runs at a position of that order at which live bytes do not rise above the computation's peak, less the fraction
    ``headroom`` of the peak. If packing the buffers still needs more memory, the plan without products is tried, then
    larger headrooms, and finally a plan that does not raise live bytes anywhere. Plans of up to ``memory`` bytes are
    always accepted. docs/internals/fusion.md describes how time is estimated.

    Instructions with control edges, side effects, other memory spaces or dynamic sizes do not change, and neither do
    modules with an operation that the runtime does not support.
    """

    name: ClassVar[str] = "priority-fusion"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED, Stage.SCHEDULED)
    machine: MachineDescription | None = field(default=None, metadata=MACHINE_OPTION)
    duplicate: bool = True
    multi_output: bool = True
    horizontal: bool = True
    products: bool = True
    headroom: float = 0.0
    memory: int = 0
    max_instructions: int = 64
    max_inputs: int = 24
    max_results: int = 12

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        context = FusionContext.of(module)
        plans, fused = ([], None) if context is None else self.plan(context)
        if fused is None or fuel.is_spent:
            return False
        if fuel.limit is None:
            for _ in range(sum(len(plan.kernels) for plan in plans)):
                fuel.burn()
            module.move_from(fused)
            return True
        for plan in plans:
            make_fusions(plan, fuel)
        module.computations = module.computations_post_order()
        return True

    def plan(self, context: FusionContext) -> tuple[list[FusionPlan], HloModule | None]:
        """Return the fusions of every computation, and the module with these fusions (None if there are none).

        Variants of the pass are tried from the most aggressive one on; the first that fits the memory is chosen.
        """
        model = CostModel(self.machine or machine_named())
        kinds, products = KernelKinds(KernelCosts(model)), ProductPlans(model)
        for room in (self.headroom, *(room for room in HEADROOMS if room > self.headroom)):
            graphs = [*replace(self, headroom=room).fused_graphs(context, kinds, products)]
            for plans in self._plans(graphs, products, with_products=room == self.headroom):
                if not any(plan.kernels for plan in plans):
                    return [], None
                fused = context.carried_out(plans, self.memory)
                if fused is not None:
                    return plans, fused
        return [], None

    def _plans(
        self,
        graphs: Sequence[tuple[FusionGraph, LiveProfile]],
        products: ProductPlans,
        *,
        with_products: bool,
    ) -> Iterator[list[FusionPlan]]:
        """Yield the plans in which products join kernels, if any product does, and then those without products."""
        indices = [indices_fused(*each) for each in graphs]
        if self.products and with_products:
            taken = [products_taken(*each, products) for each in graphs]
            if any(each.within or each.alone for each in taken):
                yield [
                    FusionPlan.of(graph, own.within, (*own.alone, *fused.fusions), fused.kernels)
                    for (graph, _), own, fused in zip(graphs, taken, indices, strict=True)
                ]
        yield [
            FusionPlan.of(graph, {}, fused.fusions, fused.kernels)
            for (graph, _), fused in zip(graphs, indices, strict=True)
        ]

    def fused_graphs(
        self, context: FusionContext, kinds: KernelKinds, products: ProductPlans
    ) -> Iterator[tuple[FusionGraph, LiveProfile]]:
        """Yield the graph and profile of every scheduled computation after its kernels have been fused."""
        uses_library = self.products and products.cost_model.machine.is_gpu
        for graph, profile in self.graphs(context, kinds):
            unfused: frozenset[HloInstruction] = frozenset()
            if uses_library:
                unfused = narrow_results(graph, profile, products)
            fuse_regions(graph, profile)
            if uses_library:
                unfused |= sums_read_again(graph, profile, products)
            fuse_producers(graph, profile, unfused, duplicate=self.duplicate)
            if self.multi_output:
                apart, stays_apart = frozenset(indices_fused(graph, profile).kernels), None
                if uses_library:
                    apart |= library_kernels(graph, profile, products)
                    stays_apart = partial(
                        is_library_kernel, graph=graph, profile=profile, plans=products
                    )
                merge_kernels(graph, profile, apart, stays_apart, horizontal=self.horizontal)
            yield graph, profile

    def graphs(
        self, context: FusionContext, kinds: KernelKinds
    ) -> Iterator[tuple[FusionGraph, LiveProfile]]:
        """Yield the graph and profile of every scheduled computation before any fusion."""
        limits = Limits(
            self.max_instructions, 2 * self.max_instructions, self.max_inputs, self.max_results
        )
        overlaps = kinds.costs.model.machine.overlaps
        for computation in context.models.computations:
            order = context.order_of[computation]
            sides = CollectiveSides.of(order) if overlaps else None
            graph = FusionGraph(computation, order, context.models.facts, kinds, limits, sides)
            model, needs = context.models.of(computation), context.needs_of[computation]
            yield graph, LiveProfile(graph, model, needs, self.headroom)
