"""Comparison of shapes: up to layouts, and up to bounds of dynamic sizes."""

from __future__ import annotations

from spmd.shape import ArrayShape, BufferShape, Shape, TupleShape


def without_layout(shape: Shape) -> Shape:
    """Return ``shape`` with no layout of any of its arrays."""
    if isinstance(shape, ArrayShape):
        return shape.without_layout()
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(without_layout, shape.elements)))
    if isinstance(shape, BufferShape):
        return BufferShape(shape.array.without_layout())
    return shape


def compatible(a: Shape, b: Shape) -> bool:
    """Return whether two shapes are equal up to layouts."""
    return without_layout(a) == without_layout(b)


def compatible_bounds(a: Shape, b: Shape) -> bool:
    """Return whether two shapes are equal up to layouts and bounds: ``f32[<=4]`` is compatible with ``f32[4]``.

    XLA requires it where a text repeats a shape (ShapeUtil::Compatible).
    """
    if isinstance(a, ArrayShape) and isinstance(b, ArrayShape):
        return a.element_type is b.element_type and a.dims == b.dims
    if isinstance(a, TupleShape) and isinstance(b, TupleShape):
        return len(a.elements) == len(b.elements) and all(
            map(compatible_bounds, a.elements, b.elements)
        )
    if isinstance(a, BufferShape) and isinstance(b, BufferShape):
        return compatible_bounds(a.array, b.array)
    return a == b
