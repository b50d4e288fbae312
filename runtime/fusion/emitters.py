"""Which emitter makes one kernel of a fusion: the only place that says what can be fused.

Decided on the fused computation alone, as if its operands lay row-major without gaps: where one of them does not, and
cannot be read as it lies, it is copied first (``Lowering.layouts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from runtime.fusion.element_graph import array_shape
from runtime.fusion.loop_fusion import LoopFusion, loop_fusion
from runtime.fusion.product_fusion import (
    ProductFusion,
    SlicedProduct,
    product_fusion,
    product_in,
)
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.row_fusion import RowFusion, has_reductions, row_fusion
from spmd.hlo import HloComputation, HloInstruction, Opcode

#: The emitters of loops and of products with what is computed of them, by name.
LOOP, PRODUCT = "loop", "product"

#: What a fusion computes, in the form that its emitter takes.
Plan: TypeAlias = LoopFusion | RowFusion | ProductFusion | SlicedProduct


@dataclass(frozen=True, slots=True)
class Emitted:
    """The emitter's name, and its plan."""

    emitter: str
    plan: Plan


def emitter_of(fused: HloInstruction | HloComputation) -> str | None:
    """The emitter of a fusion, of a fused computation, or of an instruction as if it were fused alone.

    "loop": one loop over the index space of all results. "reduce": reductions along the same dimensions of one index
    space, of computed values, and what is computed of their results. "row": that and what is computed at all indices
    with those results, such as softmax. "product": a product of matrices, and one of these three of its result, or
    slices in front of it. None: there is no emitter, and ``why_not`` says why.
    """
    try:
        return emitted(fused).emitter
    except NoEmitterError:
        return None


def why_not(fused: HloInstruction | HloComputation) -> str:
    """Why ``emitter_of`` is None, as a sentence; empty where it is not."""
    try:
        emitted(fused)
    except NoEmitterError as reason:
        return str(reason)
    return ""


def emitted(fused: HloInstruction | HloComputation) -> Emitted:
    """What ``emitter_of`` names, with its plan; NoEmitterError where there is none."""
    if isinstance(fused, HloInstruction):
        if fused.opcode is not Opcode.FUSION:
            return emitted_region((fused,), {x: fused.operands.index(x) for x in fused.operands})
        fused = fused.to_apply
    for parameter in fused.parameters:
        array_shape(parameter)
    root = fused.root
    roots = root.operands if root.opcode is Opcode.TUPLE else (root,)
    return emitted_region(roots, {p: i for i, p in enumerate(fused.parameters)})


def emitted_region(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> Emitted:
    """A kernel that gives ``roots`` from ``inputs`` (by operand number), which may be part of any computation.

    A pass can ask it before it makes a fusion: inputs are what the instructions to be fused read and are not.
    """
    if not roots:
        raise NoEmitterError("there is no result")
    if product_in(roots, inputs) is not None:
        return Emitted(PRODUCT, product_fusion(roots, inputs))
    if not has_reductions(roots, inputs):
        return Emitted(LOOP, loop_fusion(roots, inputs))
    plan = row_fusion(roots, inputs)
    if len(plan.passes) == 1:
        return Emitted("reduce", plan)
    if not plan.along_rows:
        raise NoEmitterError("passes over rows that do not lie in memory one after the other")
    return Emitted("row", plan)
