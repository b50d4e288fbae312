"""Matrix products that cuBLAS supports after conversion of operands to another type or layout.

f32[m,k] @ bf16[k,n] -> f32          rhs converted to f32, which holds all bf16 values
s8 @ s8 -> s32, of small depth       both to f32, which holds all sums; the result back
f8[m,k] @ f8[k,n] -> bf16            in 8 bits, rhs copied so that its depth lies fastest
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from runtime.gpu.conversions import Conversions, ConvertedCall
from runtime.gpu.libraries.gemm import SUMS, are_f8, gemm_calls
from runtime.gpu.planning import MakePtx
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType

#: Bytes: cuBLASLt reads matrices in vectors of this size.
_ALIGNED = 16


def converted_product(
    kernel: DotKernel, views: Sequence[StridedView], make_ptx: MakePtx, *, f8: bool = False
) -> ConvertedCall | None:
    """Plan the conversions. ``views``: lhs, rhs and result, relative to pointers that PTX kernels accept.

    f8: the GPU multiplies in 8 bits. Returns None if sums are not of a float type or no conversion helps.
    """
    if kernel.compute.is_integer or kernel.k == 0:
        return None
    if f8 and are_f8(kernel) and (call := _in_f8(kernel, views, make_ptx)) is not None:
        return call
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


def _in_f8(
    kernel: DotKernel, views: Sequence[StridedView], make_ptx: MakePtx
) -> ConvertedCall | None:
    """Plan the product in 8 bits with the fewest copies: cuBLASLt wants depth to lie fastest in both operands."""
    rank = len(kernel.batch) + 2
    plain = tuple(range(rank))
    orders = (plain, (*plain[:-2], rank - 1, rank - 2), plain)
    dense = [
        StridedView.dense_in_order(ArrayShape(view.element_type, view.dims), order)
        for view, order in zip(views, orders, strict=True)
    ]
    for copied in sorted(itertools.product((False, True), repeat=3), key=sum):
        taken = [new if copy else own for own, new, copy in zip(views, dense, copied, strict=True)]
        if any(view.offset % _ALIGNED for view in taken) or gemm_calls(kernel, *taken) is None:
            continue
        conversions = Conversions(make_ptx)
        lhs, rhs, result = (
            conversions.between(own, new, is_result=number == 2) if copy else None
            for number, (own, new, copy) in enumerate(zip(views, dense, copied, strict=True))
        )
        if not conversions.fails:
            return ConvertedCall(kernel, (lhs, rhs), result, conversions.end)
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
