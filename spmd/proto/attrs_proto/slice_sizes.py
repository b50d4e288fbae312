"""slice_sizes of an in-place collective-permute: the proto has one list, the operands' shapes say where it splits."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.shape import ArrayShape, Shape, TupleShape


def split_slice_sizes(
    sizes: tuple[int, ...], operands: tuple[HloInstruction, ...]
) -> tuple[tuple[int, ...], ...]:
    """Split the flat list into one list per slice, each as long as the rank of its input."""
    if not sizes:
        return ()
    if len(operands) != 4:
        raise HloParseError(
            f"an in-place collective-permute takes 4 operands, found {len(operands)}"
        )
    parts: list[tuple[int, ...]] = []
    start = 0
    for rank in _ranks(operands[0].shape, operands[2].shape):
        parts.append(sizes[start : start + rank])
        start += rank
    if start != len(sizes):
        raise HloParseError(f"expected {start} slice sizes, found {len(sizes)}")
    return tuple(parts)


def _ranks(data: Shape, indices: Shape) -> Iterator[int]:
    """Yield the rank of each slice. ``indices`` is a tuple of scalars for one slice, or a tuple of such tuples for
    several. If the inputs are a tuple, there is one such value for each.
    """
    if isinstance(data, TupleShape):
        if not isinstance(indices, TupleShape) or len(indices.elements) != len(data.elements):
            raise HloParseError(f"inputs {data} have the start indices {indices}")
        for element, starts in zip(data.elements, indices.elements, strict=True):
            yield from _ranks(element, starts)
        return
    if not isinstance(data, ArrayShape) or not isinstance(indices, TupleShape):
        raise HloParseError(f"an input {data} has the start indices {indices}")
    several = bool(indices.elements) and isinstance(indices.elements[0], TupleShape)
    for _ in range(len(indices.elements) if several else 1):
        yield data.rank
