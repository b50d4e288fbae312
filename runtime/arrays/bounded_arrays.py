"""Arrays of bounded dynamic shape: a program returns them padded to their bounds, together with their sizes.

outputs f32[<=8,4], pred[], s32[]     the last one is the size of dimension 0 of the first
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.errors import RunError
from spmd.literal import NDArray
from spmd.shape import ArrayShape, PrimitiveType, Shape

_SIZE = ArrayShape(PrimitiveType.S32, ())


def bounded_dimensions(shapes: Sequence[Shape]) -> list[tuple[int, int]]:
    """Return (number of the array, its dimension) for each bounded dynamic dimension, in the order of their sizes."""
    return [
        (k, d)
        for k, shape in enumerate(shapes)
        if isinstance(shape, ArrayShape)
        for d, is_dynamic in enumerate(shape.dynamic)
        if is_dynamic
    ]


def num_results(shapes: Sequence[ArrayShape]) -> int:
    """Return how many of a program's outputs are results, before the sizes; ``shapes``: those of all outputs."""
    return len(shapes) - len(bounded_dimensions(shapes))


def have_sizes(shapes: Sequence[ArrayShape]) -> bool:
    """Return whether the last of a program's outputs can be the sizes of the bounded ones before them."""
    count = num_results(shapes)
    return count >= 0 and all(shape == _SIZE for shape in shapes[count:])


def cut_to_sizes(arrays: Sequence[NDArray], shapes: Sequence[ArrayShape]) -> list[NDArray]:
    """Return the arrays at their true sizes, and no more the sizes. ``arrays``: all outputs, of ``shapes``.

    RunError for a size that leaves its bound.
    """
    bounded = bounded_dimensions(shapes)
    count = num_results(shapes)
    cut = list(arrays[:count])
    for (k, d), size in zip(bounded, map(int, arrays[count:]), strict=True):
        bound = shapes[k].dims[d]
        if not 0 <= size <= bound:
            raise RunError(f"size {size} of dimension {d} of output {k} leaves the bound {bound}")
        cut[k] = cut[k][(slice(None),) * d + (slice(size),)]
    return cut
