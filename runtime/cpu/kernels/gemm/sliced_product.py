"""Products of slices that begin at computed places: the calls of a product, which are told where to read."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from runtime.cpu.kernels.copy.copy import native_copy
from runtime.cpu.kernels.copy.copy_ir import SOURCE_WORD
from runtime.cpu.kernels.copy.slice_offset_ir import FUNCTION, SliceOffsetsRecord, places_code
from runtime.cpu.kernels.gemm.dot import bind_dot, native_product
from runtime.cpu.kernels.loop.loop import ArrayAccess, starting_accesses, starts_form, starts_record
from runtime.cpu.kernels.native_call import NOTHING, NativeAction, in_order, native_call
from runtime.program.index_maps import Shift
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.dot import DotKernel, FactorOperands, SlicedProductKernel
from spmd.literal import NDArray


@CPU_KERNELS.binds(SlicedProductKernel)
def bind_sliced_product(kernel: SlicedProductKernel, arrays: KernelArrays) -> Action:
    factors = kernel.factors
    matrices = (arrays.operands[factors.lhs], arrays.operands[factors.rhs])
    own = replace(arrays, operands=matrices)
    return product_at(kernel.product, own, factors, arrays.operands)


def product_at(
    product: DotKernel, arrays: KernelArrays, factors: FactorOperands, operands: Sequence[NDArray]
) -> Action:
    """``product`` of ``arrays``, whose operands are moved as ``factors`` says of all ``operands`` of the kernel."""
    if not any(factors.shifts) or arrays.results[0].size == 0 or product.k == 0:
        return bind_dot(product, arrays)
    made = native_product(product, arrays)
    if made is None:
        return _of_copies(product, arrays, factors, operands)
    words = _moving((made.lhs, made.rhs), factors)
    return NativeAction((*_placing(words, factors, operands).calls, *made.calls))


def _of_copies(
    product: DotKernel, arrays: KernelArrays, factors: FactorOperands, operands: Sequence[NDArray]
) -> Action:
    """Return the product of copied slices, for products without native code."""
    copies = NOTHING
    matrices, words = [], []
    for matrix, shifts in zip(arrays.operands, factors.shifts, strict=True):
        matrices.append(np.empty(matrix.shape, matrix.dtype) if shifts else matrix)
        copied: tuple[int, ...] = ()
        if shifts:
            copy = native_copy(matrix, matrices[-1])
            assert copy is not None, "a matrix has few dimensions, and its copy is its own"
            copied = tuple(call.record + 8 * SOURCE_WORD for call in copy.calls)
            copies = NativeAction((*copies.calls, *copy.calls))
        words.append(copied)
    placing = _placing(_moving(words, factors), factors, operands)
    return in_order(placing, copies, bind_dot(product, replace(arrays, operands=tuple(matrices))))


def _moving(
    words: Sequence[Sequence[int]], factors: FactorOperands
) -> list[tuple[int, tuple[Shift, ...]]]:
    """Addresses of words that say where something is read, each with what that is moved by."""
    each = zip(words, factors.shifts, strict=True)
    return [(word, shifts) for own, shifts in each if shifts for word in own]


def _placing(
    words: Sequence[tuple[int, tuple[Shift, ...]]],
    factors: FactorOperands,
    operands: Sequence[NDArray],
) -> NativeAction:
    """A call that sets the words to where they point now, moved."""
    accesses = [
        ArrayAccess(ctypes.c_int64.from_address(word).value, (), 1, shifts=shifts)
        for word, shifts in words
    ]
    starting = starting_accesses(factors.starts, operands)
    code = places_code(starts_form(starting, accesses))
    record = SliceOffsetsRecord(
        [access.start for access in accesses],
        starts_record(starting, accesses),
        [word for word, _ in words],
    )
    return native_call(code, FUNCTION, record.to_array(), tuple(operands))
