"""Evaluation of dot, ragged-dot and scaled-dot, as matrix products.

Floats multiply in f32 or wider through BLAS and are rounded once. Integers are exact modulo 2**bits: narrow ones go
through f64 BLAS where no sum can leave its 53 bits, the rest through NumPy's integer product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from spmd.errors import UnsupportedError
from spmd.evaluator.conversion import convert
from spmd.evaluator.numerics import narrow, working_type
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DotAttrs, RaggedDotAttrs
from spmd.ops.dot import group_prefix
from spmd.shape import PrimitiveType


@evaluates(Opcode.DOT)
def evaluate_dot(instruction: HloInstruction, operands: Operands) -> Value:
    attrs = instruction.attrs_as(DotAttrs)
    if attrs.extra:
        raise UnsupportedError(f"{instruction!r}: a dot with {attrs.extra[0][0]} is not evaluated")
    lhs, rhs = arrays_of(operands)
    return contract(lhs, rhs, attrs, instruction.array_shape.element_type)


def contract(lhs: NDArray, rhs: NDArray, attrs: DotAttrs, result: PrimitiveType) -> NDArray:
    """Contract. Result dimensions: batch, free of lhs, free of rhs."""
    lhs_free = [d for d in range(lhs.ndim) if d not in (*attrs.lhs_batch, *attrs.lhs_contracting)]
    rhs_free = [d for d in range(rhs.ndim) if d not in (*attrs.rhs_batch, *attrs.rhs_contracting)]
    batch = [lhs.shape[d] for d in attrs.lhs_batch]
    rows, columns = [lhs.shape[d] for d in lhs_free], [rhs.shape[d] for d in rhs_free]
    depth = math.prod(lhs.shape[d] for d in attrs.lhs_contracting)
    left = lhs.transpose([*attrs.lhs_batch, *lhs_free, *attrs.lhs_contracting])
    right = rhs.transpose([*attrs.rhs_batch, *attrs.rhs_contracting, *rhs_free])
    flat = [math.prod(batch)] if batch else []
    product = matmul(
        left.reshape([*flat, math.prod(rows), depth]),
        right.reshape([*flat, depth, math.prod(columns)]),
        result,
    )
    return product.reshape([*batch, *rows, *columns])


def matmul(left: NDArray, right: NDArray, result: PrimitiveType) -> NDArray:
    """Multiply [.., m, k] x [.., k, n] -> [.., m, n] with elements of ``result``."""
    if result is PrimitiveType.PRED:
        return np.asarray(_floats(left, right, np.dtype(np.float32)) != 0)
    if result.is_integer:
        return _integers(left, right, result)
    compute = working_type(result.numpy)
    for x in (left, right):
        compute = np.result_type(compute, working_type(x.dtype) if x.dtype.kind != "b" else compute)
    return narrow(_floats(left, right, compute), result.numpy)


def _floats(left: NDArray, right: NDArray, compute: np.dtype[np.generic]) -> NDArray:
    return np.asarray(
        np.matmul(left.astype(compute, copy=False), right.astype(compute, copy=False))
    )


def _integers(left: NDArray, right: NDArray, result: PrimitiveType) -> NDArray:
    depth = left.shape[-1]
    if depth * _magnitude(left) * _magnitude(right) < 2.0**53:
        exact = _floats(left, right, np.dtype(np.float64))
        return convert(exact.astype(np.int64), result)
    wide = np.dtype(np.int64)
    return convert(np.matmul(left.astype(wide), right.astype(wide)), result)


def _magnitude(x: NDArray) -> float:
    """Return a bound of |element| by type."""
    kind = PrimitiveType.from_numpy(x.dtype)
    return float(2 ** (kind.bits - (1 if kind.is_signed_integer else 0)))


@evaluates(Opcode.SCALED_DOT)
def evaluate_scaled_dot(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: lhs, rhs, scale of lhs, scale of rhs: one factor per block of elements, multiplied in f32 or
    wider.
    """
    lhs, rhs, lhs_scale, rhs_scale = arrays_of(operands)
    result = instruction.array_shape.element_type
    compute = np.result_type(working_type(result.numpy), np.float32)
    return contract(
        _scaled(lhs, lhs_scale, compute),
        _scaled(rhs, rhs_scale, compute),
        instruction.attrs_as(DotAttrs),
        result,
    )


def _scaled(x: NDArray, scale: NDArray, compute: np.dtype[np.generic]) -> NDArray:
    """Return x times its blocks' scales; a dimension of the scale divides that of x. A scalar scale applies to all of
    x.
    """
    factors = scale.astype(compute)
    if scale.ndim:
        for d, (size, blocks) in enumerate(zip(x.shape, scale.shape, strict=True)):
            factors = np.repeat(factors, size // max(blocks, 1), axis=d)
    return np.asarray(x.astype(compute) * factors)


@evaluates(Opcode.RAGGED_DOT)
def evaluate_ragged_dot(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: lhs, rhs, group_sizes [.., g]: consecutive runs of lhs's ragged dimension, each its own
    product.

    Ragged free dimension: run i multiplies rhs's group i. Ragged contracting dimension: the result gets a leading group
    dimension. Ragged batch dimension: the groups change nothing. Rows beyond the last group give zeros.
    """
    attrs = instruction.attrs_as(RaggedDotAttrs)
    lhs, rhs, sizes = arrays_of(operands)
    (ragged,) = attrs.lhs_ragged_dims
    result = instruction.array_shape.element_type
    if ragged in attrs.dot.lhs_batch:
        return contract(lhs, rhs, attrs.dot, result)
    total = np.zeros(instruction.dims, result.numpy)
    for group, mask in enumerate(_runs(lhs, sizes, attrs)):
        part = np.where(mask, lhs, lhs.dtype.type(0))
        if ragged in attrs.dot.lhs_contracting:
            own = np.where(_mask_of_rhs(mask, attrs.dot, rhs.ndim), rhs, rhs.dtype.type(0))
            total[group] = contract(part, own, attrs.dot, result)
        else:
            _add_free_run(total, part, np.take(rhs, group, attrs.rhs_group_dims[0]), attrs, mask)
    return total


def _runs(lhs: NDArray, sizes: NDArray, attrs: RaggedDotAttrs) -> Iterator[NDArray]:
    """Yield for each group the position of its run in lhs: a mask that broadcasts to lhs.

    ``sizes`` is [g], or is preceded by the batch dimensions and by those of the ragged dimension's kind that precede
    it.
    """
    (ragged,) = attrs.lhs_ragged_dims
    prefix = group_prefix(lhs.ndim, attrs) if sizes.ndim > 1 else ()
    order = np.argsort(prefix) if prefix else ()
    sizes = sizes.astype(np.int64)
    ends = np.cumsum(sizes, axis=-1)
    inside = np.arange(lhs.shape[ragged]).reshape(
        [-1 if d == ragged else 1 for d in range(lhs.ndim)]
    )
    shape = [lhs.shape[d] if d in prefix else 1 for d in range(lhs.ndim)]
    for group in range(sizes.shape[-1]):
        end = ends[..., group].transpose(tuple(order)).reshape(shape)
        start = end - sizes[..., group].transpose(tuple(order)).reshape(shape)
        yield (inside >= start) & (inside < end)


def _mask_of_rhs(mask: NDArray, dot: DotAttrs, rank: int) -> NDArray:
    """Return ``mask``, which broadcasts to lhs and is constant along its free dimensions, for rhs of ``rank``."""
    left, right = (*dot.lhs_batch, *dot.lhs_contracting), (*dot.rhs_batch, *dot.rhs_contracting)
    free = [d for d in range(mask.ndim) if d not in left]
    order = np.argsort(right)
    shape = [1] * rank
    for i, j in zip(left, right, strict=True):
        shape[j] = mask.shape[i]
    return mask.transpose([*(left[n] for n in order), *free]).reshape(shape)


def _add_free_run(
    total: NDArray, part: NDArray, rhs: NDArray, attrs: RaggedDotAttrs, mask: NDArray
) -> None:
    """Write the product of one run of a ragged free dimension into its rows of the result."""
    (removed,) = attrs.rhs_group_dims

    def moved(dims: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(d - (d > removed) for d in dims)

    dot = attrs.dot
    without_group = DotAttrs(
        dot.lhs_contracting, moved(dot.rhs_contracting), dot.lhs_batch, moved(dot.rhs_batch)
    )
    product = contract(part, rhs, without_group, PrimitiveType.from_numpy(total.dtype))
    free = [d for d in range(part.ndim) if d not in (*dot.lhs_batch, *dot.lhs_contracting)]
    order = [*dot.lhs_batch, *free]
    rows = mask.transpose([*order, *dot.lhs_contracting])
    rows = rows.reshape([*(mask.shape[d] for d in order), *([1] * (total.ndim - len(order)))])
    np.copyto(total, product, where=rows)
