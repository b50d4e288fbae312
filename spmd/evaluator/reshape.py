"""Evaluation of ops that move elements: reshape, broadcast, transpose, reverse, bitcasts, dimension sizes.

Results may be views of their operands: values are never written after they are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from spmd.errors import RunError, UnsupportedError
from spmd.evaluator.conversion import bitcast_convert
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, array_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.memory_order import logical_order, memory_orders
from spmd.ops.attrs import DimensionsAttrs, ReshapeAttrs


@evaluates(Opcode.RESHAPE)
def evaluate_reshape(instruction: HloInstruction, operands: Operands) -> Value:
    x = array_of(operands[0])
    if x.shape == instruction.operand(0).dims or not instruction.operand(0).dims:
        return x.reshape(instruction.dims)
    return x.reshape(_reshaped_sizes(instruction, x.shape))


@evaluates(Opcode.BROADCAST)
def evaluate_broadcast(instruction: HloInstruction, operands: Operands) -> Value:
    x = array_of(operands[0])
    dimensions = instruction.attrs_as(DimensionsAttrs).dimensions
    dims, sizes = list(instruction.dims), [1] * len(instruction.dims)
    for size, d in zip(x.shape, dimensions, strict=False):
        dims[d] = sizes[d] = size
    order = np.argsort(dimensions) if len(dimensions) > 1 else range(len(dimensions))
    return np.broadcast_to(x.transpose(tuple(order)).reshape(sizes), dims)


@evaluates(Opcode.TRANSPOSE)
def evaluate_transpose(instruction: HloInstruction, operands: Operands) -> Value:
    return array_of(operands[0]).transpose(instruction.attrs_as(DimensionsAttrs).dimensions)


@evaluates(Opcode.REVERSE)
def evaluate_reverse(instruction: HloInstruction, operands: Operands) -> Value:
    flipped = np.flip(array_of(operands[0]), instruction.attrs_as(DimensionsAttrs).dimensions)
    return np.asarray(flipped)


@evaluates(Opcode.BITCAST_CONVERT)
def evaluate_bitcast_convert(instruction: HloInstruction, operands: Operands) -> Value:
    source, shape = instruction.operand(0).array_shape, instruction.array_shape
    x = array_of(operands[0])
    if source.element_type.bits == shape.element_type.bits:
        dims = x.shape  # also correct for a scalar function applied to entire arrays
    else:
        dims = shape.dims
    return bitcast_convert(x, shape.element_type, dims, source.element_type.bits)


@evaluates(Opcode.BITCAST)
def evaluate_bitcast(instruction: HloInstruction, operands: Operands) -> Value:
    """Return the same memory under another shape: the result depends on both layouts."""
    source, shape = instruction.operand(0).array_shape, instruction.array_shape
    if source.rank == 0 and shape.rank == 0:  # a scalar function, called with entire arrays
        x = array_of(operands[0])
        return bitcast_convert(x, shape.element_type, x.shape, source.element_type.bits)
    before, after = memory_orders(source, shape)
    permutation = [logical_order(before).index(part) for part in before]
    cut = array_of(operands[0]).reshape([part.size for part in logical_order(before)])
    memory = np.ascontiguousarray(cut.transpose(permutation))
    sizes = tuple(part.size for part in after)
    data: NDArray = bitcast_convert(memory, shape.element_type, sizes, source.element_type.bits)
    return data.transpose([after.index(part) for part in logical_order(after)]).reshape(shape.dims)


@evaluates(Opcode.GET_DIMENSION_SIZE)
def evaluate_get_dimension_size(instruction: HloInstruction, operands: Operands) -> Value:
    (dimension,) = instruction.attrs_as(DimensionsAttrs).dimensions
    return np.array(array_of(operands[0]).shape[dimension], np.int32)


@evaluates(Opcode.SET_DIMENSION_SIZE)
def evaluate_set_dimension_size(instruction: HloInstruction, operands: Operands) -> Value:
    """Return the first ``size`` elements along the dimension. A bounded array is stored with its current sizes.

    Elements that a larger size adds are unspecified in XLA; they are zeros here.
    """
    (dimension,) = instruction.attrs_as(DimensionsAttrs).dimensions
    x, size = array_of(operands[0]), int(array_of(operands[1]))
    bound = instruction.dims[dimension]
    if not 0 <= size <= bound:
        raise RunError(
            f"{instruction!r}: size {size} of dimension {dimension} leaves the bound {bound}"
        )
    missing = [(0, max(0, size - x.shape[dimension]) * (d == dimension)) for d in range(x.ndim)]
    grown = np.pad(x, missing) if any(high for _, high in missing) else x
    return grown[tuple(slice(size if d == dimension else None) for d in range(x.ndim))]


@evaluates(Opcode.DYNAMIC_RESHAPE)
def evaluate_dynamic_reshape(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: x, then one size per dimension of the result."""
    x, *given = operands
    sizes = [int(array_of(size)) for size in given]
    elements = array_of(x)
    fits = all(0 <= n <= bound for n, bound in zip(sizes, instruction.dims, strict=True))
    if not fits or math.prod(sizes) != elements.size:
        raise RunError(f"{instruction!r}: {list(elements.shape)} cannot take the sizes {sizes}")
    return elements.reshape(sizes)


def _reshaped_sizes(instruction: HloInstruction, sizes: tuple[int, ...]) -> list[int]:
    """Return the sizes of a reshape's result if its operand has ``sizes``, some of them below their bounds.

    Dimensions of operand and result are matched in groups of equal element count. In a group of the result one
    dimension has a run-time size: the one that is marked (or the only one), or the inferred dimension.
    """
    bounds, found = instruction.operand(0).dims, list(instruction.dims)
    for source, target in _groups(bounds, instruction.dims):
        if all(sizes[d] == bounds[d] for d in source):
            continue
        sized = _sized_dimension(instruction, target)
        others = math.prod(found[d] for d in target if d != sized)
        elements = math.prod(sizes[d] for d in source)
        if sized is None or others == 0 or elements % others:
            raise UnsupportedError(
                f"{instruction!r}: which sizes the result has does not follow from {list(sizes)}"
            )
        found[sized] = elements // others
    return found


def _sized_dimension(instruction: HloInstruction, dims: list[int]) -> int | None:
    inferred = instruction.attrs_as(ReshapeAttrs).inferred_dimension
    if inferred in dims:
        return inferred
    dynamic = instruction.array_shape.dynamic
    marked = [d for d in dims if dynamic and dynamic[d]]
    candidates = marked or [d for d in dims if instruction.dims[d] > 1]
    return candidates[0] if len(candidates) == 1 else None


def _groups(
    source: tuple[int, ...], target: tuple[int, ...]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the smallest groups of dimensions of two shapes that hold equally many elements."""
    i = j = 0
    while i < len(source) and j < len(target):
        left, right, sizes = [i], [j], [source[i], target[j]]
        i, j = i + 1, j + 1
        while sizes[0] != sizes[1]:
            if sizes[0] < sizes[1] and i < len(source):
                sizes[0] *= source[i]
                left.append(i)
                i += 1
            elif j < len(target):
                sizes[1] *= target[j]
                right.append(j)
                j += 1
            else:
                break
        yield left, right
