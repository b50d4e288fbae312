"""Matrix products in cuBLAS terms: column major, one leading dimension and one stride between matrices each.

A row-major matrix is its transpose in column-major terms. So the row-major result[m, n] = lhs @ rhs is computed as
result' = rhs' @ lhs', where ' is cuBLAS's view of a matrix.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Bytes: cuBLAS reads matrices behind pointers in vectors of this size.
_ALIGNED = 16
#: Most pointers of one array; they are written once for each product.
_MOST_POINTERS = 1 << 16


@dataclass(frozen=True, slots=True)
class GemmMatrix:
    """Layout of a batch of matrices. ``offset``: bytes from the view's first element.

    ``transposed``: cuBLAS transposes it. ``leading``: elements between columns; ``step``: between matrices.
    """

    offset: int
    transposed: bool
    leading: int
    step: int


@dataclass(frozen=True, slots=True)
class GemmCall:
    """Batch of ``count`` products c = a @ b in column-major terms, ``m`` by ``n`` with depth ``k``.

    ``swapped``: a is the product's right operand, as for every row-major result. a_kind, b_kind: types of a and b,
    which differ for f8 only. ``compute``: type of sums. tf32: operands are f32 and are rounded to TF32. offsets: bytes
    from the first elements of a, b and c to each of the ``count`` matrices, if these are not evenly spaced; offsets and
    steps are 0 then.
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


_F32, _F64 = PrimitiveType.F32, PrimitiveType.F64
#: (operands, result) -> the type in which cuBLAS sums: f32 for narrow floats, as XLA does.
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

#: Operands of products in 8 bits (not two f8e5m2), and their results.
F8_OPERANDS = {PrimitiveType.F8E4M3FN, PrimitiveType.F8E5M2}
F8_RESULTS = {PrimitiveType.BF16, PrimitiveType.F16, _F32}
_F8_MULTIPLE = 16


def gemm_calls(
    kernel: DotKernel, lhs: StridedView, rhs: StridedView, out: StridedView
) -> tuple[GemmCall, ...] | None:
    """Return the cuBLAS calls of ``kernel``: None for unsupported types or strides, no calls for no elements."""
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
    """Return whether the operands are of types that tensor cores multiply in 8 bits."""
    both = {kernel.lhs, kernel.rhs}
    return both <= F8_OPERANDS and both != {PrimitiveType.F8E5M2}


def _suits_f8(call: GemmCall) -> bool:
    """Return whether cuBLASLt takes a product of f8: depth lies fastest in both operands, sizes are multiples of 16."""
    sizes = (call.m, call.n, call.k, call.a.leading, call.b.leading, call.c.leading)
    steps = (call.a.step, call.b.step, call.c.step)
    return (
        call.a.transposed
        and not call.b.transposed
        and all(size % _F8_MULTIPLE == 0 for size in (*sizes, *steps))
    )


def in_one_call(calls: tuple[GemmCall, ...], lhs: int, rhs: int, out: int) -> tuple[GemmCall, ...]:
    """Return calls of one product as a single call by pointers; unchanged if one is enough or pointers do not fit.

    lhs, rhs, out: addresses of the first elements. cuBLAS needs pointers that are multiples of 16 bytes.
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
    """Return (whether columns are contiguous instead of rows, elements between rows (or columns)); None for neither."""
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
    """Return batch dimensions, slowest first; neighbours that are evenly spaced in all three arrays are merged."""
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
    """Return the other dimensions, and the largest one, which one call iterates over."""
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
    return 2 * math.prod((call.m, call.n, call.k, call.count))
