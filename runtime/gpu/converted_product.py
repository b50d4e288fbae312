"""Matrix products that cuBLAS supports after conversion of operands to another type or layout.

f32[m,k] @ bf16[k,n] -> f32          rhs converted to f32, which holds all bf16 values
s8 @ s8 -> s32, of small depth       both to f32, which holds all sums; the result back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.gpu.conversions import Conversions, ConvertedCall
from runtime.gpu.gemm import SUMS, gemm_calls
from runtime.gpu.planning import MakePtx
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType


def converted_product(
    kernel: DotKernel, views: Sequence[StridedView], make_ptx: MakePtx
) -> ConvertedCall | None:
    """Plan the conversions. ``views``: lhs, rhs and result, relative to pointers that PTX kernels accept.

    Returns None if sums are not of a float type or no conversion helps.
    """
    if kernel.compute.is_integer or kernel.k == 0:
        return None
    for wanted in _ways(kernel):
        conversions = Conversions(make_ptx)
        made = [
            None
            if view.element_type is kind and _suits(view)
            else conversions.between(
                view, StridedView.dense(ArrayShape(kind, view.dims)), is_result=number == 2
            )
            for number, (view, kind) in enumerate(zip(views, wanted, strict=True))
        ]
        if conversions.fails:
            return None
        lhs, rhs, result = made
        taken = [v if one is None else one.view for v, one in zip(views, made, strict=True)]
        product = replace(kernel, lhs=wanted[0], rhs=wanted[1], result=wanted[2])
        if gemm_calls(product, *taken) is not None:
            return ConvertedCall(product, (lhs, rhs), result, conversions.end)
    return None


def _ways(kernel: DotKernel) -> list[tuple[PrimitiveType, PrimitiveType, PrimitiveType]]:
    """Return lossless types of lhs, rhs and result that cuBLAS supports; those with fewest conversions first."""
    ways = []
    if kernel.lhs is kernel.rhs and (kernel.lhs, kernel.compute) in SUMS:
        ways.append((kernel.lhs, kernel.rhs, kernel.compute))
    whole = kernel.compute
    if (whole, kernel.result) in SUMS:
        ways.append((whole, whole, kernel.result))
    if (whole, whole) in SUMS:
        ways.append((whole, whole, whole))
    return ways


def _suits(view: StridedView) -> bool:
    """Return whether its last two dimensions can be a matrix of cuBLAS, as far as the view alone decides."""
    item = view.element_type.byte_size
    return any(
        size == 1 or stride == item
        for size, stride in zip(view.dims[-2:], view.strides[-2:], strict=True)
    ) and all(
        (stride > 0 and stride % item == 0) or size == 1
        for size, stride in zip(view.dims[-2:], view.strides[-2:], strict=True)
    )
