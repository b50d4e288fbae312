"""Matrix products in cuBLAS's terms: column-major matrices with a leading dimension and a stride between matrices.

cuBLAS reads a row-major matrix as its transpose. So the row-major result[m, n] = lhs @ rhs is computed as
result' = rhs' @ lhs', where ' marks the matrix as cuBLAS reads it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from runtime.program.gemm_epilogue import Activation
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Alignment in bytes of matrices in arrays of pointers: cuBLAS reads vectors of this size.
_ALIGNED = 16
#: Largest number of pointers in one array of pointers, which is written once for each product.
_MOST_POINTERS = 1 << 16


@dataclass(frozen=True, slots=True)
class GemmMatrix:
    """Layout of a batch of column-major matrices.

    offset: bytes from the first element of the array's view to the first matrix. transposed: cuBLAS uses the transposes
    of the matrices. leading: elements between columns (leading dimension). step: elements between matrices.
    """

    offset: int
    transposed: bool
    leading: int
    step: int


@dataclass(frozen=True, slots=True)
class CallEpilogue:
    """Epilogue of a call: c = act(alpha * a @ b + beta * addend + bias), or without ``activation`` the sum.

    The addend lies like c, and may be c itself; it is not read if ``beta`` is 0. bias: whether there is a vector of m
    elements, which is added to every column. aux: whether there is an array of arguments of gelu, which lies like c but
    shares no memory with it: GELU writes the sum there, and GELU_GRADIENT reads it and multiplies the sum by the
    gradient of gelu. All have the type of c. scales: how many f32 numbers in memory a @ b is multiplied by, at most two
    and only for f8.
    """

    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    activation: Activation | None = None
    aux: bool = False
    scales: int = 0


@dataclass(frozen=True, slots=True)
class GemmCall:
    """Batch of ``count`` column-major products c[m, n] = a[m, k] @ b[k, n], with an ``epilogue`` or None.

    swapped: a is the right operand of the HLO product, as for every row-major result. a_kind, b_kind: types of a and b,
    which differ for f8 only. compute: type of the accumulators. tf32: operands are f32 and are rounded to TF32.
    offsets: if the matrices are not evenly spaced, bytes from the first elements of a, b and c to each of the ``count``
    matrices; the offsets and steps of ``a``, ``b`` and ``c`` are 0 then.
    """

    m: int
    n: int
    k: int
    count: int
    a: GemmMatrix
    b: GemmMatrix
    c: GemmMatrix
    swapped: bool
    a_kind: PrimitiveType
    b_kind: PrimitiveType
    result: PrimitiveType
    compute: PrimitiveType
    tf32: bool = False
    offsets: tuple[tuple[int, int, int], ...] = ()
    epilogue: CallEpilogue | None = None


_F32, _F64 = PrimitiveType.F32, PrimitiveType.F64
#: (type of both operands, type of the result) -> type in which cuBLAS accumulates: f32 for f16 and bf16, as in XLA.
SUMS = {
    (PrimitiveType.BF16, PrimitiveType.BF16): _F32,
    (PrimitiveType.BF16, _F32): _F32,
    (PrimitiveType.F16, PrimitiveType.F16): _F32,
    (PrimitiveType.F16, _F32): _F32,
    (_F32, _F32): _F32,
    (_F64, _F64): _F64,
    (PrimitiveType.C64, PrimitiveType.C64): PrimitiveType.C64,
    (PrimitiveType.C128, PrimitiveType.C128): PrimitiveType.C128,
}

#: Types of operands of f8 products (both must not be f8e5m2), and types of their results.
F8_OPERANDS = {PrimitiveType.F8E4M3FN, PrimitiveType.F8E5M2}
F8_RESULTS = {PrimitiveType.BF16, PrimitiveType.F16, _F32}
_F8_MULTIPLE = 16


def gemm_calls(
    kernel: DotKernel, lhs: StridedView, rhs: StridedView, out: StridedView
) -> tuple[GemmCall, ...] | None:
    """Return the cuBLAS calls that compute ``kernel`` on arrays with these layouts.

    Returns None if cuBLAS does not support the types or strides, and no calls if the result has no elements.
    """
    compute = SUMS.get((kernel.lhs, kernel.result))
    is_f8 = are_f8(kernel)
    if is_f8 and kernel.result in F8_RESULTS:
        compute = _F32
    elif kernel.lhs is not kernel.rhs:
        return None
    if compute is None or kernel.k == 0:
        return None
    if out.num_elements == 0:
        return ()
    count = len(kernel.batch)
    views = (lhs, rhs, out)
    left, right, result = (
        _matrix(v.dims[count:], v.strides[count:], v.element_type.byte_size) for v in views
    )
    if left is None or right is None or result is None:
        return None
    batch = _merged_batch(kernel.batch, [[v.strides[d] for v in views] for d in range(count)])
    outer, (size, steps) = _taken_at_once(batch)
    items = [v.element_type.byte_size for v in views]
    if any(step % item for step, item in zip(steps, items, strict=True)):
        return None
    # A result that is transposed in row-major terms is plain for cuBLAS: then operands are not
    # swapped.
    swapped = not result[0]
    m, n = (kernel.n, kernel.m) if swapped else (kernel.m, kernel.n)
    calls = []
    for offsets in _offsets(outer):
        of = [
            GemmMatrix(offset, transposed, leading, step // item)
            for offset, (transposed, leading), step, item in zip(
                offsets, (left, right, result), steps, items, strict=True
            )
        ]
        lhs_matrix, rhs_matrix, c = of
        if swapped:
            a, b = rhs_matrix, lhs_matrix
        else:
            a, b = _flipped(lhs_matrix), _flipped(rhs_matrix)
        calls.append(
            GemmCall(
                m,
                n,
                kernel.k,
                size,
                a,
                b,
                _plain(c),
                swapped,
                kernel.rhs if swapped else kernel.lhs,
                kernel.lhs if swapped else kernel.rhs,
                kernel.result,
                compute,
                tf32=kernel.tf32 and kernel.lhs is _F32,
            )
        )
    if is_f8 and not (len(calls) == 1 and _suits_f8(calls[0])):
        return None
    return tuple(calls)


def are_f8(kernel: DotKernel) -> bool:
    """Return whether the operands of ``kernel`` have f8 types that tensor cores multiply."""
    both = {kernel.lhs, kernel.rhs}
    return both <= F8_OPERANDS and both != {PrimitiveType.F8E5M2}


def _suits_f8(call: GemmCall) -> bool:
    """Return whether cuBLASLt supports a product of f8 operands with the layouts of ``call``.

    The contracted dimension must vary fastest in both operands, and sizes and strides must be multiples of 16.
    """
    sizes = (call.m, call.n, call.k, call.a.leading, call.b.leading, call.c.leading)
    steps = (call.a.step, call.b.step, call.c.step)
    return (
        call.a.transposed
        and not call.b.transposed
        and all(size % _F8_MULTIPLE == 0 for size in (*sizes, *steps))
    )


def in_one_call(calls: tuple[GemmCall, ...], lhs: int, rhs: int, out: int) -> tuple[GemmCall, ...]:
    """Return the ``calls`` of one product as a single call with arrays of pointers (cublasGemmBatchedEx).

    lhs, rhs, out: addresses of the first elements. Returns ``calls`` unchanged if there is only one, if there are more
    than _MOST_POINTERS matrices, or if the address of a matrix is not a multiple of 16 bytes.
    """
    count = sum(call.count for call in calls)
    if len(calls) < 2 or count > _MOST_POINTERS:
        return calls
    one = calls[0]
    firsts = (rhs, lhs, out) if one.swapped else (lhs, rhs, out)
    sizes = (one.a_kind.byte_size, one.b_kind.byte_size, one.result.byte_size)
    offsets = tuple(
        (
            call.a.offset + i * call.a.step * sizes[0],
            call.b.offset + i * call.b.step * sizes[1],
            call.c.offset + i * call.c.step * sizes[2],
        )
        for call in calls
        for i in range(call.count)
    )
    for own in offsets:
        if any((first + offset) % _ALIGNED for first, offset in zip(firsts, own, strict=True)):
            return calls
    a, b, c = (GemmMatrix(0, m.transposed, m.leading, 0) for m in (one.a, one.b, one.c))
    return (replace(one, count=count, a=a, b=b, c=c, offsets=offsets),)


def _matrix(dims: Sequence[int], strides: Sequence[int], item: int) -> tuple[bool, int] | None:
    """Return (False, elements between rows) if rows are contiguous, (True, elements between columns) if columns are.

    dims, strides: of the matrix, strides in bytes. item: bytes of an element. Returns None if neither is contiguous.
    """
    (rows, columns), (along_rows, along_columns) = dims, strides
    if columns == 1 or along_columns == item:
        leading = columns if rows == 1 else along_rows // item
        if leading >= columns and (rows == 1 or along_rows % item == 0):
            return False, leading
    if rows == 1 or along_rows == item:
        leading = rows if columns == 1 else along_columns // item
        if leading >= rows and (columns == 1 or along_columns % item == 0):
            return True, leading
    return None


def _flipped(matrix: GemmMatrix) -> GemmMatrix:
    return GemmMatrix(matrix.offset, not matrix.transposed, matrix.leading, matrix.step)


def _plain(matrix: GemmMatrix) -> GemmMatrix:
    return GemmMatrix(matrix.offset, False, matrix.leading, matrix.step)


def _merged_batch(
    sizes: Sequence[int], strides: Sequence[list[int]]
) -> list[tuple[int, list[int]]]:
    """Return the batch dimensions as (size, strides of lhs, rhs and result in bytes), slowest first.

    Adjacent dimensions are merged if the merged one has a constant stride in all three arrays.
    """
    merged: list[tuple[int, list[int]]] = []
    for size, own in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == [size * stride for stride in own]:
            merged[-1] = (merged[-1][0] * size, own)
        else:
            merged.append((size, own))
    return merged


def _taken_at_once(
    batch: list[tuple[int, list[int]]],
) -> tuple[list[tuple[int, list[int]]], tuple[int, list[int]]]:
    """Return the batch dimensions except the largest, and the largest, which a single strided call iterates over."""
    if not batch:
        return [], (1, [0, 0, 0])
    largest = max(range(len(batch)), key=lambda i: batch[i][0])
    return batch[:largest] + batch[largest + 1 :], batch[largest]


def _offsets(outer: list[tuple[int, list[int]]]) -> list[list[int]]:
    """Return the byte offsets of (lhs, rhs, result) for each call."""
    return [
        [
            sum(i * strides[array] for i, (_, strides) in zip(index, outer, strict=True))
            for array in range(3)
        ]
        for index in itertools.product(*(range(size) for size, _ in outer))
    ]


def flops(call: GemmCall) -> int:
    """Return the number of multiplications and additions of ``call``."""
    return 2 * math.prod((call.m, call.n, call.k, call.count))
