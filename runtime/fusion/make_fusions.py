"""Write planned kernels into their computation as fusion instructions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.fusion.element_graph import post_order
from runtime.fusion.fusion_graph import FusionGraph, Kernel
from spmd.analysis.side_effects import SideEffects
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.instruction import Annotations
from spmd.ops.attrs import FusionAttrs, ParameterAttrs, TupleIndexAttrs
from spmd.passes.fuel import Fuel
from spmd.passes.rewrite import replace_and_prune
from spmd.shape import TupleShape

#: XLA's kinds by emitter; all others reduce, which makes an input fusion.
_KINDS = {"loop": "kLoop"}


@dataclass(frozen=True)
class _Written:
    """A kernel with the computation that says what it does."""

    kernel: Kernel
    emitter: str
    fused: HloComputation


def make_fusions(graph: FusionGraph, fuel: Fuel) -> int:
    """One fusion for each kernel that is one, as far as fuel goes; how many.

    Each is valid by itself: what several kernels compute stays until none reads it. Fused computations are written
    first, while the instructions that they are copies of still stand as planned.
    """
    kernels = [kernel for kernel in graph.kernels if kernel.is_fusion]
    written = [_written(graph, kernel) for kernel in kernels]
    stands_for: dict[HloInstruction, HloInstruction] = {}
    effects = SideEffects()
    made = 0
    for one in written:
        if fuel.is_spent:
            break
        fuel.burn()
        results = _call(graph.computation, one, stands_for)
        for root, result in zip(one.kernel.roots, results, strict=True):
            stands_for[root] = result
            replace_and_prune(root, result, effects)
        made += 1
    return made


def _written(graph: FusionGraph, kernel: Kernel) -> _Written:
    emitter = graph.emitter(kernel)
    assert emitter is not None, "planned kernels have an emitter"
    module = graph.computation.module
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
    fused.root = _result(fused, [copies[x] for x in kernel.roots])
    return _Written(kernel, emitter, fused)


def _result(fused: HloComputation, results: Sequence[HloInstruction]) -> HloInstruction:
    if len(results) == 1:
        return results[0]
    return fused.create(Opcode.TUPLE, TupleShape(tuple(x.shape for x in results)), results)


def _call(
    computation: HloComputation, one: _Written, stands_for: dict[HloInstruction, HloInstruction]
) -> Iterator[HloInstruction]:
    """The fusion, or the elements of what it gives; it carries its emitter's name and its last result's metadata."""
    roots = one.kernel.roots
    last = roots[-1]
    alone = len(roots) == 1
    fusion = computation.create(
        Opcode.FUSION,
        one.fused.root.shape,
        [stands_for.get(x, x) for x in one.kernel.inputs],
        FusionAttrs(_KINDS.get(one.emitter, "kInput")),
        name=f"{one.emitter}_{last.opcode.value.replace('-', '_')}_fusion",
        called_computations=(one.fused,),
        sharding=last.sharding if alone else None,
        annotations=Annotations(
            metadata=last.annotations.metadata,
            backend_config=json.dumps({"fusion_config": {"emitter": one.emitter}}),
        ),
    )
    if alone:
        return iter([fusion])
    elements = []
    for n, root in enumerate(roots):
        element = computation.create(
            Opcode.GET_TUPLE_ELEMENT, root.shape, (fusion,), TupleIndexAttrs(n)
        )
        element.sharding = root.sharding
        elements.append(element)
    return iter(elements)
