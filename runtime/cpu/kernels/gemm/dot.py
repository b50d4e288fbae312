"""Matrix products by the tile unit, by integer code, by BLAS (with conversions if needed), or else by NumPy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from collectives.communicator.actions.shared_buffers import private_array
from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.gemm.native_dot import blas_product, over_batch
from runtime.cpu.kernels.native_call import NOTHING, NativeAction, RelocatableCall, in_order
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.dot import DotKernel


@CPU_KERNELS.binds(DotKernel)
def bind_dot(kernel: DotKernel, arrays: KernelArrays) -> Action:
    """Bind the product to native code, or to NumPy if there is none. A product of depth 0 is zeros."""
    (out,) = arrays.results
    if out.size == 0:
        return NOTHING
    if kernel.k == 0:
        return copying(np.zeros((), out.dtype), out)
    product = native_product(kernel, arrays)
    return by_numpy(kernel, arrays) if product is None else NativeAction(product.calls)


def native_product(kernel: DotKernel, arrays: KernelArrays) -> RelocatableCall | None:
    """Return native calls that compute the entire batch, which is not empty, or None if there is no native code."""
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
            from runtime.cpu.kernels.gemm.converted_dot import converted_product

            product = converted_product(kernel.compute, matrices, arrays.scratch, kernel.block_rows)
    return None if product is None else over_batch(product, kernel.batch, lhs, rhs, out)


def _without_tiles(kernel: DotKernel, arrays: KernelArrays) -> tuple[DotKernel, KernelArrays]:
    """Return the kernel without the tile unit, and with new scratch for the conversions that it makes instead.

    It is needed if ``tile_product`` returns None: the program has no scratch for conversions then.
    """
    if not kernel.on_tiles:
        return kernel, arrays
    kernel = replace(kernel, on_tiles=False)
    own = tuple(private_array(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
    return kernel, replace(arrays, scratch=own)


def by_numpy(kernel: DotKernel, arrays: KernelArrays) -> Action:
    """Bind the product to NumPy, one matrix after the other if arrays must be converted."""
    kernel, arrays = _without_tiles(kernel, arrays)
    lhs, rhs = arrays.operands
    (out,) = arrays.results
    if kernel.is_direct:
        return partial(np.matmul, lhs, rhs, out)
    from runtime.cpu.kernels.convert import converting  # few programs need it

    kinds, spare = (kernel.lhs, kernel.rhs, kernel.result), list(arrays.scratch)
    left, right, total = (spare.pop(0) if kind is not kernel.compute else None for kind in kinds)
    actions: list[Action] = []
    for index in np.ndindex(*kernel.batch):
        if right is not None:
            actions.append(converting(rhs[index], right))
        for start in range(0, kernel.m, kernel.block_rows):
            rows, to = (x[index][start : start + kernel.block_rows] for x in (lhs, out))
            here = rows if left is None else left[: len(rows)]
            there = to if total is None else total[: len(rows)]
            if left is not None:
                actions.append(converting(rows, here))
            actions.append(partial(np.matmul, here, rhs[index] if right is None else right, there))
            if total is not None:
                actions.append(converting(there, to))
    return in_order(*actions)
