"""Matrix products that cuBLAS takes once their operands have been converted, or lie otherwise.

f32[m,k] @ bf16[k,n] -> f32          rhs converted to f32, whose values those of bf16 are
s8 @ s8 -> s32, of small depth       both to f32, which holds all sums; the result back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.codegen.ir.element_operations import ElementSignature
from runtime.cpu.kernels.copy.copy import CopyKernel
from runtime.cpu.kernels.gemm.dot import DotKernel
from runtime.cpu.kernels.loop.native_elementwise import NativeElementwiseKernel
from runtime.gpu.arena import ALIGNMENT
from runtime.gpu.codegen.launch import PtxLaunch
from runtime.gpu.gemm import SUMS, gemm_calls
from runtime.gpu.planning import MakePtx
from runtime.program.kernel import Kernel
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True)
class Conversion:
    """``kernel`` between an array of the program and ``view``, dense, at byte ``start`` of a workspace."""

    kernel: Kernel
    launches: tuple[PtxLaunch, ...]
    view: StridedView
    start: int


@dataclass(frozen=True)
class ConvertedProduct:
    """``product`` of operands that are converted where ``lhs`` or ``rhs`` says so, its result where ``result`` does."""

    product: DotKernel
    lhs: Conversion | None
    rhs: Conversion | None
    result: Conversion | None
    workspace_bytes: int


def converted_product(
    kernel: DotKernel, views: Sequence[StridedView], make_ptx: MakePtx
) -> ConvertedProduct | None:
    """``views``: of lhs, rhs and result, from pointers that kernels in PTX take. None where sums are no float's."""
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
    """Types of lhs, rhs and result that cuBLAS takes and that lose nothing; those with least to convert first."""
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
    """Lays out a workspace."""

    def __init__(self, make_ptx: MakePtx) -> None:
        self._make_ptx = make_ptx
        self.end = 0
        self.fails = False

    def made(self, view: StridedView, kind: PrimitiveType, *, is_result: bool) -> Conversion | None:
        """None for what is taken as it is: of this type already, rows or columns without gaps."""
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
    """Its last two dimensions are a matrix of cuBLAS's, as far as that can be told of it alone."""
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
