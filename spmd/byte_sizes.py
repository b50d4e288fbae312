"""Bytes of shapes: as they are stored here, and with packed elements, as GPUs store them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from spmd.shape import ArrayShape, BufferShape, Shape, TupleShape

#: Returns the bytes of a shape.
SizeOf: TypeAlias = Callable[[Shape], int]


def byte_size(shape: Shape) -> int:
    """Return the bytes of ``shape`` as stored here: at least one for each element."""
    return shape.byte_size


def packed_byte_size(shape: Shape) -> int:
    """Return the bytes of ``shape`` if elements of four bits and less stand packed, as XLA stores them on GPUs."""
    if isinstance(shape, ArrayShape):
        return -(-shape.num_elements * shape.element_type.packed_bits // 8)
    if isinstance(shape, TupleShape):
        return sum(map(packed_byte_size, shape.elements))
    return packed_byte_size(shape.array) if isinstance(shape, BufferShape) else 0
