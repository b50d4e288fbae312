"""Matrix products by BLAS, with conversion of other types, a block of rows at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from runtime.cpu.kernels.convert import converting
from runtime.cpu.kernels.gemm.native_dot import blas_product, converted_product, over_batch
from runtime.cpu.kernels.gemm.relocatable_calls import RelocatableCall
from runtime.cpu.kernels.gemm.tile_choice import suits_tiles
from runtime.cpu.kernels.native_call import NOTHING, NativeAction
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.dot import DotKernel
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


def plan_dot(
    batch: tuple[int, ...],
    sizes: tuple[int, int, int],
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType],
    *,
    tf32: bool = False,
) -> DotKernel | None:
    """Return the product of sizes m, k, n and types of operands and result as this machine computes it.

    `tf32`: allowed by the program. Integers of more than 8 bits, which TF32 does not hold, are never rounded. Returns
    None if there is no type to sum in.
    """
    compute = compute_type(*types, sizes[1])
    if compute is None:
        return None
    tf32 &= compute is PrimitiveType.F32 and not any(
        kind.is_integer and kind.bits > 8 for kind in types[:2]
    )
    return DotKernel(batch, *sizes, *types, compute, suits_tiles(types, sizes), tf32)


@CPU_KERNELS.binds(DotKernel)
def bind_dot(kernel: DotKernel, arrays: KernelArrays) -> Action:
    """Bind native code; NumPy if there is none."""
    (out,) = arrays.results
    if out.size == 0:
        return NOTHING
    if kernel.k == 0:
        return converting(np.zeros((), out.dtype), out)
    product = native_product(kernel, arrays)
    return by_numpy(kernel, arrays) if product is None else NativeAction(product.calls)


def native_product(kernel: DotKernel, arrays: KernelArrays) -> RelocatableCall | None:
    """Return native calls for the entire batch, which is not empty; None if there is no native code."""
    lhs, rhs = arrays.operands
    (out,) = arrays.results
    first = (0,) * len(kernel.batch)
    matrices = (lhs[first], rhs[first], out[first])
    product = None
    if kernel.on_tiles:
        from runtime.cpu.kernels.gemm.tile_dot import tile_product

        product = tile_product(*matrices)
    if product is None:
        kernel, arrays = _without_tiles(kernel, arrays)
        if kernel.compute.is_integer:
            from runtime.cpu.kernels.gemm.integer_dot import integer_product

            product = integer_product(*matrices)
        elif kernel.is_direct:
            product = blas_product(kernel.compute, *matrices)
        else:
            product = converted_product(kernel.compute, matrices, arrays.scratch, kernel.block_rows)
    return None if product is None else over_batch(product, kernel.batch, lhs, rhs, out)


def _without_tiles(kernel: DotKernel, arrays: KernelArrays) -> tuple[DotKernel, KernelArrays]:
    """Return the kernel without the tile unit, with scratch for the conversions that the unit makes itself."""
    if not kernel.on_tiles:
        return kernel, arrays
    kernel = replace(kernel, on_tiles=False)
    scratch = tuple(np.zeros(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
    return kernel, replace(arrays, scratch=scratch)


def by_numpy(kernel: DotKernel, arrays: KernelArrays) -> Action:
    """Bind the product without native code."""
    kernel, arrays = _without_tiles(kernel, arrays)
    lhs, rhs = arrays.operands
    (out,) = arrays.results
    if kernel.is_direct:
        return partial(np.matmul, lhs, rhs, out)
    products = [
        _Product(kernel, lhs[index], rhs[index], out[index], arrays.scratch)
        for index in np.ndindex(*kernel.batch)
    ]

    def run() -> None:
        for product in products:
            product.run()

    return run


@dataclass(frozen=True)
class _Product:
    """One matrix product with conversions."""

    kernel: DotKernel
    lhs: NDArray
    rhs: NDArray
    out: NDArray
    scratch: tuple[NDArray, ...]

    def run(self) -> None:
        kernel = self.kernel
        spare = list(self.scratch)
        left = spare.pop(0) if kernel.lhs is not kernel.compute else None
        rhs = self.rhs
        if kernel.rhs is not kernel.compute:
            rhs = spare.pop(0)
            np.copyto(rhs, self.rhs, casting="unsafe")
        total = spare.pop(0) if kernel.result is not kernel.compute else None
        for start in range(0, kernel.m, kernel.block_rows):
            rows = slice(start, min(start + kernel.block_rows, kernel.m))
            count = rows.stop - start
            block = self.lhs[rows]
            if left is not None:
                np.copyto(left[:count], block, casting="unsafe")
                block = left[:count]
            if total is None:
                np.matmul(block, rhs, out=self.out[rows])
            else:
                np.matmul(block, rhs, out=total[:count])
                np.copyto(self.out[rows], total[:count], casting="unsafe")


def compute_type(
    lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, depth: int
) -> PrimitiveType | None:
    """Return the type to sum in: a float if that is exact for integers too, else the integer itself.

    Returns None if there is no kernel (sums of truth values, small integers of great depth).
    """
    if result is PrimitiveType.PRED:
        return None
    if result.is_integer:
        if not (lhs.is_integer and rhs.is_integer):
            return None
        largest = depth * _largest(lhs) * _largest(rhs)
        if largest > _largest(result, negative=False) or largest > 2.0**53:
            return result if min(lhs.bits, rhs.bits, result.bits) >= 8 else None
        return PrimitiveType.F32 if largest <= 2.0**24 else PrimitiveType.F64
    types = [
        np.dtype(np.float32) if t.is_floating and t.bits < 32 else t.numpy
        for t in (lhs, rhs, result)
        if t is not PrimitiveType.PRED
    ]
    return PrimitiveType.from_numpy(np.result_type(*types))


def _largest(kind: PrimitiveType, *, negative: bool = True) -> float:
    """Return the largest magnitude of an integer type, or of its positive numbers."""
    if not kind.is_signed_integer:
        return 2.0**kind.bits - 1
    return 2.0 ** (kind.bits - 1) - (0 if negative else 1)
