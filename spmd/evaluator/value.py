"""Values of the evaluator: arrays, tuples of values, tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, Shape, TupleShape

NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Token:
    """The value of token[] (and of opaque[]): it orders, and holds no data."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "TOKEN"


TOKEN = Token()


@dataclass(frozen=True, slots=True, eq=False)
class PerDevice:
    """A value inside a manual region of the unpartitioned evaluation: one version per device.

    ``axes`` names the mesh axes along which the versions may differ.
    """

    versions: Mapping[int, Value]
    axes: frozenset[str]


Value: TypeAlias = NDArray | tuple["Value", ...] | Token | PerDevice
Operands: TypeAlias = tuple[Value, ...]


def has_versions(operands: Operands) -> bool:
    for operand in operands:  # noqa: SIM110 - this runs for every instruction, and a generator would cost more
        if isinstance(operand, PerDevice):
            return True
    return False


def version_for(value: Value, device: int) -> Value:
    """Return the version of ``value`` for ``device``; a value outside manual regions is equal on all devices."""
    return value.versions[device] if isinstance(value, PerDevice) else value


def array_of(value: Value) -> NDArray:
    """Return ``value``, which must be an array."""
    if not isinstance(value, np.ndarray):
        raise RunError(f"expected an array value, found {_kind(value)}")
    return value


def arrays_of(values: Operands) -> list[NDArray]:
    return [array_of(value) for value in values]


def tuple_of(value: Value) -> tuple[Value, ...]:
    """Return ``value``, which must be a tuple."""
    if not isinstance(value, tuple):
        raise RunError(f"expected a tuple value, found {_kind(value)}")
    return value


def part(x: NDArray, index: Sequence[slice]) -> NDArray:
    """Return x[index] as an array even if it is a single element (NumPy would return a scalar)."""
    full_index: tuple[Any, ...] = (..., *index)
    return np.asarray(x[full_index])


def packed(results: Sequence[Value], shape: Shape) -> Value:
    """Return the results of a variadic op: a tuple if ``shape`` is one, else the only result."""
    if isinstance(shape, TupleShape):
        return tuple(results)
    (only,) = results
    return only


def flatten(value: Value) -> Iterator[Value]:
    """Yield the leaves in depth-first order, tokens included."""
    if isinstance(value, tuple):
        for element in value:
            yield from flatten(element)
    else:
        yield value


def unflatten(shape: Shape, leaves: Iterator[Value]) -> Value:
    """Return the value of ``shape`` made of the next leaves; tokens and opaque parts take none."""
    if isinstance(shape, TupleShape):
        return tuple(unflatten(element, leaves) for element in shape.elements)
    return next(leaves) if isinstance(shape, ArrayShape) else TOKEN


def _kind(value: Value) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    return "a tuple" if isinstance(value, tuple) else type(value).__name__
