"""Matrix products that cuBLAS supports after conversion of operands to another type or layout.

f32[m,k] @ bf16[k,n] -> f32          rhs converted to f32, which holds all bf16 values
s8 @ s8 -> s32, of small depth       both to f32, which holds all sums; the result back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.gpu.arena import ALIGNMENT
from runtime.gpu.codegen.launch import PtxLaunch
from runtime.gpu.gemm import SUMS, gemm_calls
from runtime.gpu.planning import MakePtx
from runtime.program.kernel import Kernel
from runtime.program.records.copy import CopyKernel
from runtime.program.records.dot import DotKernel
from runtime.program.records.native_elementwise import NativeElementwiseKernel
from runtime.program.scalar_program import ElementSignature
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True)
class Conversion:
    """Conversion by ``kernel`` between an array of the program and dense ``view`` at byte ``start`` of a workspace."""

    kernel: Kernel
    launches: tuple[PtxLaunch, ...]
    view: StridedView
    start: int


@dataclass(frozen=True)
class ConvertedProduct:
    """``product`` with conversions of those of ``lhs``, ``rhs`` and ``result`` that are not None."""

    product: DotKernel
    lhs: Conversion | None
    rhs: Conversion | None
    result: Conversion | None
    workspace_bytes: int


def converted_product(
    kernel: DotKernel, views: Sequence[StridedView], make_ptx: MakePtx
) -> ConvertedProduct | None:
    """Plan the conversions. ``views``: lhs, rhs and result, relative to pointers that PTX kernels accept.

    Returns None if sums are not of a float type or no conversion helps.
    """
    if kernel.compute.is_integer or kernel.k == 0:
        return None
    for wanted in _ways(kernel):
        maker = _Maker(make_ptx)
        made = [
            maker.made(view, kind, is_result=number == 2)
            for number, (view, kind) in enumerate(zip(views, wanted, strict=True))
        ]
        if maker.fails:
            return None
        lhs, rhs, result = made
        taken = [v if one is None else one.view for v, one in zip(views, made, strict=True)]
        product = replace(kernel, lhs=wanted[0], rhs=wanted[1], result=wanted[2])
        if gemm_calls(product, *taken) is not None:
            return ConvertedProduct(product, lhs, rhs, result, maker.end)
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


class _Maker:
    """Builder of conversions; it assigns offsets in a workspace."""

    def __init__(self, make_ptx: MakePtx) -> None:
        self._make_ptx = make_ptx
        self.end = 0
        self.fails = False

    def made(self, view: StridedView, kind: PrimitiveType, *, is_result: bool) -> Conversion | None:
        """Return the conversion of one array; None if it has this type already and contiguous rows or columns."""
        if view.element_type is kind and _suits(view):
            return None
        dense = StridedView.dense(ArrayShape(kind, view.dims))
        source, target = (dense, view) if is_result else (view, dense)
        kernel = _conversion(source.element_type, target.element_type)
        launches = self._make_ptx(kernel, (source,), (target,), ())
        if launches is None:
            self.fails = True
            return None
        start, self.end = self.end, self.end + -(-dense.byte_size // ALIGNMENT) * ALIGNMENT
        return Conversion(kernel, launches, dense, start)


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


def _conversion(source: PrimitiveType, target: PrimitiveType) -> Kernel:
    if source is target:
        return CopyKernel()
    return NativeElementwiseKernel(ElementSignature(Opcode.CONVERT, (source,), target))
