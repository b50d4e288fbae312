"""Literal: a constant value, an array or a tuple of literals; immutable and hashable."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from spmd.errors import ShapeError
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, Shape, TupleShape

NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A literal: ``array`` for an array (read-only, dtype of the element type), else ``elements`` of a tuple.

    Two literals are equal if shapes and bits are equal (so nan equals the same nan, and 0.0 differs from -0.0).
    """

    shape: Shape
    array: NDArray | None = None
    elements: tuple[Literal, ...] = ()

    @staticmethod
    def of(shape: Shape, value: object) -> Literal:
        """Return an array literal of ``shape`` (static sizes) from a value that NumPy converts. Raises ShapeError if
        sizes differ.
        """
        if not isinstance(shape, ArrayShape):
            raise ShapeError(f"expected an array shape for a literal, found {shape}")
        array = np.array(value, dtype=shape.element_type.numpy)
        if array.shape != shape.dims:
            raise ShapeError(f"literal has sizes {array.shape}, its shape is {shape}")
        array.setflags(write=False)
        return Literal(shape.without_layout(), array)

    @staticmethod
    def tuple_of(elements: tuple[Literal, ...]) -> Literal:
        return Literal(TupleShape(tuple(e.shape for e in elements)), None, elements)

    def value(self) -> NDArray:
        if self.array is None:
            raise ShapeError("a tuple literal has no single array")
        return self.array

    @property
    def is_scalar(self) -> bool:
        return self.array is not None and self.array.ndim == 0

    def _key(self) -> tuple[object, ...]:
        bits = b"" if self.array is None else self.array.tobytes()
        return (self.shape, bits, self.elements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())
