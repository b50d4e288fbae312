"""Conversions between callers and computations: input arrays to parameter values, the root's value to output arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.errors import ShapeError
from spmd.evaluator.value import NDArray, Operands, Value, array_of, flatten, unflatten
from spmd.hlo.module import HloModule
from spmd.shape import ArrayShape, leaves


def entry_arguments(module: HloModule, arrays: Sequence[NDArray]) -> Operands:
    """Return one value per entry parameter, from its leaves in order. Raises ShapeError if an array does not fit."""
    parameters = module.entry.parameters
    wanted = [
        (parameter.name, shape)
        for parameter in parameters
        for _, shape in leaves(parameter.shape)
        if isinstance(shape, ArrayShape)
    ]
    if len(arrays) != len(wanted):
        raise ShapeError(f"{module.name} takes {len(wanted)} arrays, found {len(arrays)}")
    checked = [
        _checked(i, np.asarray(x), name, shape)
        for i, (x, (name, shape)) in enumerate(zip(arrays, wanted, strict=True))
    ]
    supply = iter(checked)
    return tuple(unflatten(parameter.shape, supply) for parameter in parameters)


def _checked(position: int, x: NDArray, name: str, shape: ArrayShape) -> NDArray:
    if not _fits(x.shape, shape) or x.dtype != shape.element_type.numpy:
        raise ShapeError(
            f"argument {position} ({name}): expected {shape.without_layout()}, found {x.dtype}{list(x.shape)}"
        )
    return x


def _fits(sizes: tuple[int, ...], shape: ArrayShape) -> bool:
    """Return whether sizes are equal; a bounded dimension (``<=n``) may be smaller."""
    if not any(shape.dynamic):
        return sizes == shape.dims
    return len(sizes) == shape.rank and all(
        size <= bound if dynamic else size == bound
        for size, bound, dynamic in zip(sizes, shape.dims, shape.dynamic, strict=True)
    )


def output_arrays(module: HloModule, value: Value) -> list[NDArray]:
    """Return the array leaves of the root, each an array of its own."""
    shapes = [shape for _, shape in leaves(module.entry.root.shape)]
    outputs = []
    for shape, leaf in zip(shapes, flatten(value), strict=True):
        if isinstance(shape, ArrayShape):
            outputs.append(np.array(array_of(leaf), dtype=shape.element_type.numpy, order="C"))
    return outputs
