"""Choice of the emitter for a fusion. Only this module decides what can be fused.

The decision uses the fused computation alone, as if its operands were dense and row-major. An operand that is not, and
cannot be read with its strides, is copied first (``Lowering.layouts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from runtime.fusion.element_operations import FEW, array_shape
from runtime.fusion.loop_fusion import LoopFusion, loop_fusion
from runtime.fusion.products.product_fusion import (
    ProductFusion,
    SlicedProduct,
    product_fusion,
    product_in,
)
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.row_fusion import RowFusionPlan, has_reductions, row_fusion
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass

#: Names of the emitters of loops and of products with epilogues.
LOOP, PRODUCT = "loop", "product"

#: Computation of a fusion, as its emitter needs it.
Plan: TypeAlias = LoopFusion | RowFusionPlan | ProductFusion | SlicedProduct


@dataclass(frozen=True, slots=True)
class Emitted:
    """Name of the emitter, and its plan."""

    emitter: str
    plan: Plan


def emitter_of(fused: HloInstruction | HloComputation) -> str | None:
    """Return the emitter of a fusion, of a fused computation, or of an instruction as if it were fused alone.

    "loop": one loop over the index space of all results, which may combine a few elements each. "reduce": reductions
    along the same dimensions of one index space, of computed values, and what is computed of their results. "row": the
    same, and what is computed at all indices from their results, such as softmax. "product": a matrix product with one
    of these three as its epilogue, or with slices as its operands. None: there is no emitter; ``why_not`` returns the
    reason.
    """
    try:
        return emitted(fused).emitter
    except NoEmitterError:
        return None


def why_not(fused: HloInstruction | HloComputation) -> str:
    """Return a sentence on why ``emitter_of`` is None, or an empty string if it is not."""
    try:
        emitted(fused)
    except NoEmitterError as reason:
        return str(reason)
    return ""


def emitted(fused: HloInstruction | HloComputation) -> Emitted:
    """Return the emitter and its plan. Raises NoEmitterError if there is none."""
    roots, inputs = _region_of(fused)
    return as_loop_if_short(emitted_region(roots, inputs), roots, inputs)


def _region_of(
    fused: HloInstruction | HloComputation,
) -> tuple[Sequence[HloInstruction], dict[HloInstruction, int]]:
    """Return the results of a fusion, of a fused computation or of an instruction alone, and the inputs by number."""
    if isinstance(fused, HloInstruction):
        if fused.opcode is not Opcode.FUSION:
            return (fused,), {x: fused.operands.index(x) for x in fused.operands}
        fused = fused.to_apply
    for parameter in fused.parameters:
        array_shape(parameter)
    root = fused.root
    roots = root.operands if root.opcode is Opcode.TUPLE else (root,)
    return roots, {p: i for i, p in enumerate(fused.parameters)}


def emitted_region(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> Emitted:
    """Choose a kernel that computes ``roots`` from ``inputs`` (by operand number); both may be in any computation.

    A pass can call it before it makes a fusion: inputs are the instructions that the fused ones read. Raises
    NoEmitterError if there is no emitter.
    """
    if not roots:
        raise NoEmitterError("there is no result")
    if product_in(roots, inputs) is not None:
        return Emitted(PRODUCT, product_fusion(roots, inputs))
    if not has_reductions(roots, inputs):
        return Emitted(LOOP, loop_fusion(roots, inputs))
    plan = row_fusion(roots, inputs)
    if len(plan.fusion.passes) == 1:
        return Emitted("reduce", plan)
    if not plan.fusion.along_rows:
        raise NoEmitterError("passes over rows that do not lie in memory one after the other")
    return Emitted("row", plan)


def as_loop_if_short(
    found: Emitted, roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> Emitted:
    """Return a loop over the results in place of ``found``, if that is a plan of rows so short that a loop is faster.

    What the loop writes is what the rows are computed of at the same indices.
    """
    if not has_short_rows(found):
        return found
    with suppress(NoEmitterError):
        return Emitted(LOOP, loop_fusion(roots, inputs))
    return found


def has_short_rows(found: Emitted) -> bool:
    """Return whether it is a plan of rows of so few elements that beginning a row takes longer than the row."""
    return isinstance(found.plan, RowFusionPlan) and 0 < found.plan.fusion.row_length <= FEW
