"""Choice of the emitter for a fusion. Only this module decides whether instructions can be fused.

The decision depends on the fused computation alone, as if its operands were dense and row-major. An operand that is
not, and that strides cannot express, is copied first (``Lowering.layouts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from runtime.fusion.element_operations import FEW, array_shape
from runtime.fusion.indexed.index_fusion import IndexFusion, computes_indices, fused_indices
from runtime.fusion.loop_fusion import LoopFusion, loop_fusion
from runtime.fusion.products.convolution_fusion import ConvolutionFusion, convolution_fusion
from runtime.fusion.products.product_fusion import (
    ProductFusion,
    SlicedProduct,
    product_fusion,
    product_in,
)
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.row_fusion import RowFusionPlan, has_reductions, row_fusion
from spmd.analysis.fusion_emitter import CONVOLUTION
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass

#: Names of the emitters of loops, of products with epilogues, of such products in one call of a GPU's library, and of
#: gathers and scatters with their indices.
LOOP, PRODUCT, GEMM, INDEXED = "loop", "product", "gemm", "indexed"

#: Plan of a fusion, which its emitter generates code from.
Plan: TypeAlias = (
    LoopFusion | RowFusionPlan | ProductFusion | SlicedProduct | ConvolutionFusion | IndexFusion
)


@dataclass(frozen=True, slots=True)
class Emitted:
    """Emitter of a fusion, by name, and the plan that it generates code from."""

    emitter: str
    plan: Plan


def emitter_of(fused: HloInstruction | HloComputation) -> str | None:
    """Return the emitter of a fusion, of a fused computation, or of an instruction as if it were fused alone.

    "loop" is one loop over the index space of all results, each of which may combine a few elements. "reduce" computes
    reductions along the same dimensions of one index space, and values per row from their results. "row" also computes
    values at all indices from the reductions, as in softmax. "product" is a matrix product whose epilogue is one of
    these three, or whose operands are slices; passes for a GPU call it "gemm" if a library computes it in one call.
    "convolution" is a convolution and a loop over its result, which a GPU's library computes in one call. "indexed" is
    a gather or scatter that computes its indices. The result is None if there is no emitter; ``emitted``
    then raises the reason.
    """
    try:
        return emitted(fused).emitter
    except NoEmitterError:
        return None


def emitted(fused: HloInstruction | HloComputation) -> Emitted:
    """Return the emitter of ``fused`` and its plan. Raises NoEmitterError if there is none."""
    roots, inputs = _region_of(fused)
    return as_loop_if_short(emitted_region(roots, inputs), roots, inputs)


def _region_of(
    fused: HloInstruction | HloComputation,
) -> tuple[Sequence[HloInstruction], dict[HloInstruction, int]]:
    """Return the results and the numbered inputs of a fusion, a fused computation, or an instruction alone."""
    if isinstance(fused, HloInstruction):
        if fused.opcode is not Opcode.FUSION:
            return (fused,), {x: fused.operands.index(x) for x in fused.operands}
        fused = fused.to_apply
    for parameter in fused.parameters:
        array_shape(parameter)
    return fused.root.elements, {p: i for i, p in enumerate(fused.parameters)}


def emitted_region(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> Emitted:
    """Choose the emitter of a kernel that computes ``roots`` from ``inputs``, which are numbered as operands.

    The inputs may be any instructions of the roots' computation, so a pass can call this before it makes a fusion.
    Raises NoEmitterError if there is no emitter.
    """
    if not roots:
        raise NoEmitterError("there is no result")
    product = product_in(roots, inputs)
    if product is not None and product.opcode is Opcode.CONVOLUTION:
        return Emitted(CONVOLUTION, convolution_fusion(product, roots, inputs))
    if product is not None:
        return Emitted(PRODUCT, product_fusion(product, roots, inputs))
    if computes_indices(roots, inputs):
        return Emitted(INDEXED, fused_indices(roots[0], inputs))
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
    """Return a loop over the results instead of ``found``, if that iterates over rows so short that a loop is faster.

    Returns ``found`` if its rows are not short, or if there is no such loop.
    """
    if not has_short_rows(found):
        return found
    with suppress(NoEmitterError):
        return Emitted(LOOP, loop_fusion(roots, inputs))
    return found


def has_short_rows(found: Emitted) -> bool:
    """Return whether ``found`` iterates over rows so short that beginning a row takes longer than its elements."""
    return isinstance(found.plan, RowFusionPlan) and 0 < found.plan.fusion.row_length <= FEW
