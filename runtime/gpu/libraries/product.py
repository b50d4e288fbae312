"""Matrix products that cuBLAS supports after a conversion of operands to another type or layout.

f32[m,k] @ bf16[k,n] -> f32          rhs is converted to f32, which represents all bf16 values
s8 @ s8 -> s32, of small depth       both are converted to f32, which represents all sums; the result is converted back
f8[m,k] @ f8[k,n] -> bf16            computed in f8; rhs is copied so that k varies fastest. Sizes that do not suit: in
                                     bf16, which represents all f8 values
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from runtime.gpu.libraries.call import KernelCall
from runtime.gpu.libraries.gemm import F8_OPERANDS, SUMS, are_f8, gemm_calls
from runtime.gpu.libraries.sequence import SequenceArray, SequenceBuilder, in_sequence
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType

#: Alignment in bytes of f8 matrices: cuBLASLt reads vectors of this size.
_ALIGNED = 16

#: Product to call, and for each of lhs, rhs and result the dense layout of a copy that replaces it, or None to use the
#: array in place.
Way: TypeAlias = tuple[DotKernel, tuple[StridedView | None, ...]]


@in_sequence(DotKernel)
def product(kernel: DotKernel, builder: SequenceBuilder) -> bool:
    """Add the conversions of operands and result, and the call of cuBLAS.

    Returns False if the accumulators are of an integer type, or if no conversion makes the product one of cuBLAS.
    """
    (lhs, rhs), (result,) = builder.operands, builder.results
    return add_product(kernel, (lhs, rhs, result), builder)


def add_product(
    kernel: DotKernel,
    arrays: tuple[SequenceArray, SequenceArray, SequenceArray],
    builder: SequenceBuilder,
) -> bool:
    """Add the stages of the product of ``arrays``: lhs, rhs and the result. Returns False as ``product`` does."""
    views = [array.view for array in arrays]
    way = next(_ways(kernel, views, f8=builder.options.f8), None)
    if way is None:
        return False
    called, dense = way
    taken = [
        array if view is None else builder.room_for(view)
        for array, view in zip(arrays, dense, strict=True)
    ]
    for array, room in zip(arrays[:2], taken, strict=False):
        if room is not array:
            builder.copy(array, room)
    builder.call(KernelCall(called), *taken)
    if taken[2] is not arrays[2]:
        builder.copy(taken[2], arrays[2])
    return True


def f8_operands(
    kernel: DotKernel,
    arrays: tuple[SequenceArray, SequenceArray, SequenceArray],
    builder: SequenceBuilder,
) -> tuple[SequenceArray, SequenceArray] | None:
    """Return lhs and rhs in a layout that cuBLASLt supports, and add the copies to it.

    arrays: lhs, rhs and the result, which must stay where it is. Returns None, without copies, if there is no such
    layout or if the GPU has no f8 products.
    """
    views = [array.view for array in arrays]
    ways = _in_f8(kernel, views) if builder.options.f8 else ()
    dense = next((dense for _, dense in ways if dense[2] is None), None)
    if dense is None:
        return None
    taken = []
    for array, view in zip(arrays[:2], dense, strict=False):
        room = array if view is None else builder.room_for(view)
        if room is not array:
            builder.copy(array, room)
        taken.append(room)
    return taken[0], taken[1]


def _ways(kernel: DotKernel, views: Sequence[StridedView], *, f8: bool) -> Iterator[Way]:
    """Yield the calls that compute ``kernel``, the fastest first. f8: tensor cores may multiply f8 operands."""
    if kernel.compute.is_integer or kernel.k == 0:
        return
    if f8 and are_f8(kernel):
        yield from _in_f8(kernel, views)
    if not are_f8(kernel) and gemm_calls(kernel, *views) is not None:
        yield kernel, (None, None, None)
    for wanted in _types(kernel):
        dense = tuple(
            None
            if view.element_type is kind and _suits(view)
            else StridedView.dense(ArrayShape(kind, view.dims))
            for view, kind in zip(views, wanted, strict=True)
        )
        called = replace(kernel, lhs=wanted[0], rhs=wanted[1], result=wanted[2])
        if gemm_calls(called, *_taken(views, dense)) is not None:
            yield called, dense


def _in_f8(kernel: DotKernel, views: Sequence[StridedView]) -> Iterator[Way]:
    """Yield f8 products, the one with the fewest copies first.

    cuBLASLt requires that the contracted dimension varies fastest in both operands.
    """
    rank = len(kernel.batch) + 2
    plain = tuple(range(rank))
    orders = (plain, (*plain[:-2], rank - 1, rank - 2), plain)
    copies = [
        StridedView.dense_in_order(ArrayShape(view.element_type, view.dims), order)
        for view, order in zip(views, orders, strict=True)
    ]
    for copied in sorted(itertools.product((False, True), repeat=3), key=sum):
        dense = tuple(new if own else None for own, new in zip(copied, copies, strict=True))
        taken = _taken(views, dense)
        if not any(view.offset % _ALIGNED for view in taken) and gemm_calls(kernel, *taken):
            yield kernel, dense


def _taken(
    views: Sequence[StridedView], dense: tuple[StridedView | None, ...]
) -> tuple[StridedView, StridedView, StridedView]:
    lhs, rhs, result = (own if new is None else new for own, new in zip(views, dense, strict=True))
    return lhs, rhs, result


def _types(kernel: DotKernel) -> list[tuple[PrimitiveType, PrimitiveType, PrimitiveType]]:
    """Return types of (lhs, rhs, result) that cuBLAS supports and that lose no precision, fewest conversions first."""
    ways = []
    if {kernel.lhs, kernel.rhs} <= F8_OPERANDS and (PrimitiveType.BF16, kernel.result) in SUMS:
        ways.append((PrimitiveType.BF16, PrimitiveType.BF16, kernel.result))
    if kernel.lhs is kernel.rhs and (kernel.lhs, kernel.compute) in SUMS:
        ways.append((kernel.lhs, kernel.rhs, kernel.compute))
    compute = kernel.compute
    if (compute, kernel.result) in SUMS:
        ways.append((compute, compute, kernel.result))
    if (compute, compute) in SUMS:
        ways.append((compute, compute, compute))
    return ways


def _suits(view: StridedView) -> bool:
    """Return whether the strides of the last two dimensions of ``view`` fit a matrix of cuBLAS."""
    item = view.element_type.byte_size
    return any(
        size == 1 or stride == item
        for size, stride in zip(view.dims[-2:], view.strides[-2:], strict=True)
    ) and all(
        (stride > 0 and stride % item == 0) or size == 1
        for size, stride in zip(view.dims[-2:], view.strides[-2:], strict=True)
    )
