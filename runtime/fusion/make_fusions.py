"""Write planned kernels into their computation as fusion instructions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from runtime.fusion.element_graph import post_order
from runtime.fusion.emitters import GEMM, INDEXED, LOOP, PRODUCT, Emitted, as_loop_if_short
from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel
from runtime.fusion.plan_cache import store
from spmd.analysis.fusion_emitter import ATTENTION, CONVOLUTION, emitter_config
from spmd.analysis.side_effects import SideEffects
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.instruction import Annotations
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import FusionAttrs, ParameterAttrs, TupleIndexAttrs
from spmd.passes.fuel import Fuel
from spmd.passes.rewrite import replace_and_prune
from spmd.shape import TupleShape

#: XLA's fusion kind of each emitter; all other emitters reduce, so that their kind is kInput.
_KINDS = {
    LOOP: "kLoop",
    INDEXED: "kLoop",
    PRODUCT: "kOutput",
    GEMM: "kOutput",
    CONVOLUTION: "kOutput",
    ATTENTION: "kCustom",
}


@dataclass(frozen=True)
class FusedKernel:
    """Kernel that becomes a fusion, with its position in the instruction order and its emitter.

    repeats: pairs (instruction, root that has the same value). The readers of the instruction will read the root.
    """

    roots: tuple[HloInstruction, ...]
    inputs: tuple[HloInstruction, ...]
    position: int
    emitted: Emitted
    repeats: tuple[tuple[HloInstruction, HloInstruction], ...] = ()


@dataclass(frozen=True)
class FusionPlan:
    """The kernels that become fusions of ``computation``, by their positions in the instruction order ``order``."""

    computation: HloComputation
    order: Sequence[HloInstruction]
    kernels: tuple[FusedKernel, ...]

    @staticmethod
    def of(
        graph: FusionGraph,
        products: Mapping[Kernel, FusedKernel],
        others: Sequence[FusedKernel] = (),
        without: Collection[Kernel] = (),
    ) -> FusionPlan:
        """Return the plan of all fusions of ``graph``.

        ``products`` gives the new plan of each kernel that a product joins, ``others`` kernels outside of the graph,
        and ``without`` the kernels that these compute.
        """
        kernels = [
            products[kernel] if kernel in products else _fused_kernel(kernel)
            for kernel in graph.kernels
            if kernel in products or (graph.is_fusion(kernel) and kernel not in without)
        ]
        in_order = sorted([*kernels, *others], key=lambda kernel: kernel.position)
        return FusionPlan(graph.computation, graph.order, tuple(in_order))

    def on(self, computation: HloComputation, named: Mapping[str, HloInstruction]) -> FusionPlan:
        """Return the plan for ``computation``, a copy whose instructions ``named`` gives by name."""
        return FusionPlan(
            computation,
            [named[x.name] for x in self.order],
            tuple(
                replace(
                    kernel,
                    roots=tuple(named[x.name] for x in kernel.roots),
                    inputs=tuple(named[x.name] for x in kernel.inputs),
                    repeats=tuple((named[x.name], named[y.name]) for x, y in kernel.repeats),
                )
                for kernel in self.kernels
            ),
        )


def _fused_kernel(kernel: Kernel) -> FusedKernel:
    """Return ``kernel`` with the emitter that generates its code."""
    emitted = kernel.kind.emitted
    assert emitted is not None, "kernels are only joined where there is an emitter"
    inputs = {x: n for n, x in enumerate(kernel.inputs)}
    final = as_loop_if_short(emitted, kernel.roots, inputs)
    return FusedKernel(kernel.roots, kernel.inputs, kernel.position, final)


def make_fusions(plan: FusionPlan, fuel: Fuel) -> None:
    """Make one fusion for each kernel of ``plan`` while fuel lasts.

    Every single fusion is valid: an instruction that several kernels compute stays until no instruction reads it. All
    fused computations are written before the first replacement, because they copy instructions that the replacements
    change.
    """
    computation = plan.computation
    kernels = tuple(fuel.enough_for(plan.kernels))
    written = [_written(computation, kernel) for kernel in kernels]
    stands_for: dict[HloInstruction, HloInstruction] = {}
    position_of = {x: n for n, x in enumerate(plan.order)}
    effects = SideEffects()
    for kernel, fused in zip(kernels, written, strict=True):
        inputs = [stands_for.get(x, x) for x in kernel.inputs]
        emitter = kernel.emitted.emitter
        results = add_fusion(computation, fused, inputs, emitter, kernel.roots[-1])
        for root, result in zip(kernel.roots, results, strict=True):
            result.sharding = root.sharding
            stands_for[root] = result
            replace_and_prune(root, result, effects)
            position_of[result] = kernel.position
            if len(results) > 1:
                position_of[result.operand(0)] = kernel.position
        for repeat, root in kernel.repeats:
            stands_for[repeat] = stands_for[root]
            replace_and_prune(repeat, stands_for[root], effects)
    if kernels:
        # The planned order is a schedule for all fusions. If fuel ran out, remaining instructions may
        # have to run earlier.
        computation.set_order(sorted(computation.instructions, key=position_of.__getitem__))
        computation.set_order(computation.post_order())


def _written(computation: HloComputation, kernel: FusedKernel) -> HloComputation:
    """Return a new fused computation that copies the instructions of ``kernel``; its inputs become parameters."""
    module = computation.module
    assert module is not None, "passes work on modules"
    fused = module.new_computation("fused_computation")
    copies: dict[HloInstruction, HloInstruction] = {}
    for n, x in enumerate(kernel.inputs):
        copies[x] = fused.create(
            Opcode.PARAMETER, x.shape, attrs=ParameterAttrs(n), name=f"param_{n}"
        )
    for x in post_order(kernel.roots, dict.fromkeys(kernel.inputs, 0)):
        if x not in copies:
            copy = x.clone(x.shape, [copies[operand] for operand in x.operands])
            copy.sharding = None
            copies[x] = fused.add(copy)
    results = [copies[x] for x in kernel.roots]
    fused.root = results[0]
    if len(results) > 1:
        shape = TupleShape(tuple(x.shape for x in results))
        fused.root = fused.create(Opcode.TUPLE, shape, results)
    store(fused, kernel.emitted)
    return fused


def call_of(
    fused: HloComputation, inputs: Iterable[HloInstruction], emitter: str, replaced: HloInstruction
) -> HloInstruction:
    """Return a fusion that calls ``fused`` and is in no computation yet.

    It is named after the ``replaced`` instruction and has the metadata of that instruction.
    """
    return HloInstruction(
        Opcode.FUSION,
        fused.root.shape,
        inputs,
        FusionAttrs(_KINDS.get(emitter, "kInput")),
        name=f"{emitter}_{replaced.opcode.value.replace('-', '_')}_fusion",
        called_computations=(fused,),
        annotations=Annotations(
            metadata=replaced.annotations.metadata,
            backend_config=emitter_config(emitter),
        ),
    )


def add_fusion(
    computation: HloComputation,
    fused: HloComputation,
    inputs: Iterable[HloInstruction],
    emitter: str,
    replaced: HloInstruction,
) -> list[HloInstruction]:
    """Add a fusion that calls ``fused`` to ``computation`` and return it, or its elements if it has several results.

    The name is made of the emitter's name and the opcode of ``replaced``, whose metadata the fusion has.
    """
    fusion = computation.add(call_of(fused, inputs, emitter, replaced))
    if fused.root.opcode is not Opcode.TUPLE:
        return [fusion]
    return [
        computation.create(Opcode.GET_TUPLE_ELEMENT, result.shape, (fusion,), TupleIndexAttrs(n))
        for n, result in enumerate(fused.root.operands)
    ]
