"""Products of dynamic slices: a call stores the slices' addresses in records before the calls of the product."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from runtime.cpu.kernels.copy.copy import SOURCE_WORD, native_copy
from runtime.cpu.kernels.copy.slice_offset import storing_addresses
from runtime.cpu.kernels.gemm.dot import bind_dot, native_product
from runtime.cpu.kernels.loop.loop import ArrayAccess
from runtime.cpu.kernels.native_call import NOTHING, NativeAction, in_order
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.dot import DotKernel, FactorOperands, SlicedProductKernel
from runtime.program.strides import Shift
from spmd.literal import NDArray


@CPU_KERNELS.binds(SlicedProductKernel)
def bind_sliced_product(kernel: SlicedProductKernel, arrays: KernelArrays) -> Action:
    """Bind the product of the slices of operands that ``kernel.factors`` names."""
    factors = kernel.factors
    matrices = (arrays.operands[factors.lhs], arrays.operands[factors.rhs])
    own = replace(arrays, operands=matrices)
    return product_at(kernel.product, own, factors, arrays.operands)


def product_at(
    product: DotKernel, arrays: KernelArrays, factors: FactorOperands, operands: Sequence[NDArray]
) -> Action:
    """Bind ``product`` of ``arrays``, whose operands begin at the run-time offsets ``factors.shifts``.

    ``operands`` are all operands of the kernel, from which the offsets are computed.
    """
    if not any(factors.shifts) or arrays.results[0].size == 0 or product.k == 0:
        return bind_dot(product, arrays)
    made = native_product(product, arrays)
    if made is None:
        return _of_copies(product, arrays, factors, operands)
    addresses = _moving((made.lhs, made.rhs), factors)
    return NativeAction((*_placing(addresses, factors, operands).calls, *made.calls))


def _of_copies(
    product: DotKernel, arrays: KernelArrays, factors: FactorOperands, operands: Sequence[NDArray]
) -> Action:
    """Bind the product of copies of the slices, for products without native code.

    The copies are allocated here, outside the program's memory.
    """
    copies = NOTHING
    matrices, addresses = [], []
    for matrix, shifts in zip(arrays.operands, factors.shifts, strict=True):
        matrices.append(np.empty(matrix.shape, matrix.dtype) if shifts else matrix)
        copied: tuple[int, ...] = ()
        if shifts:
            copy = native_copy(matrix, matrices[-1])
            assert copy is not None, "a matrix has few dimensions, and its copy is its own"
            copied = tuple(call.record + 8 * SOURCE_WORD for call in copy.calls)
            copies = NativeAction((*copies.calls, *copy.calls))
        addresses.append(copied)
    placing = _placing(_moving(addresses, factors), factors, operands)
    return in_order(placing, copies, bind_dot(product, replace(arrays, operands=tuple(matrices))))


def _moving(
    addresses: Sequence[Sequence[int]], factors: FactorOperands
) -> list[tuple[int, tuple[Shift, ...]]]:
    """Return the addresses of the record words that must be offset, each with its shifts."""
    each = zip(addresses, factors.shifts, strict=True)
    return [(address, shifts) for own, shifts in each if shifts for address in own]


def _placing(
    addresses: Sequence[tuple[int, tuple[Shift, ...]]],
    factors: FactorOperands,
    operands: Sequence[NDArray],
) -> NativeAction:
    """Return a call that stores in each word the address that it holds now, offset by its shifts."""
    slices = {
        address: ArrayAccess(ctypes.c_int64.from_address(address).value, (), 1, shifts=shifts)
        for address, shifts in addresses
    }
    return storing_addresses(slices, factors.starts, operands)
