"""Strided layouts of arrays. Broadcast, transpose, slice, reverse and many reshapes only change the layout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Protocol

from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True, slots=True)
class StridedView:
    """Layout of an array: element (i0, i1, ..) is at byte ``offset + i0 * strides[0] + i1 * strides[1] + ..``.

    f32[4,3] dense:           strides (12, 4), offset 0
    its transpose f32[3,4]:   strides (4, 12)
    reversed in dimension 0:  strides (-12, 4), offset 36
    a row, broadcast to 8x3:  strides (0, 4)
    """

    element_type: PrimitiveType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def dense(shape: ArrayShape) -> StridedView:
        """Return the row-major view of ``shape`` without gaps, at offset 0."""
        return StridedView(
            shape.element_type,
            shape.dims,
            dense_strides(shape.dims, shape.element_type.byte_size),
        )

    @staticmethod
    def dense_in_order(shape: ArrayShape, order: tuple[int, ...]) -> StridedView:
        """Return the view of ``shape`` without gaps, at offset 0, in which dimension ``order[0]`` varies slowest."""
        sizes = tuple(shape.dims[d] for d in order)
        packed = dense_strides(sizes, shape.element_type.byte_size)
        strides = [0] * shape.rank
        for dimension, stride in zip(order, packed, strict=True):
            strides[dimension] = stride
        return StridedView(shape.element_type, shape.dims, tuple(strides))

    @property
    def num_elements(self) -> int:
        """Number of indices of the view."""
        count = 1
        for size in self.dims:
            count *= size
        return count

    @property
    def byte_size(self) -> int:
        """Number of elements times bytes of an element. A broadcast view occupies fewer bytes than that."""
        return self.num_elements * self.element_type.byte_size

    @property
    def stored_bytes(self) -> int:
        """Bytes of the elements, of which one that a broadcast repeats counts once."""
        pairs = zip(self.dims, self.strides, strict=True)
        stored = math.prod(size if stride else min(size, 1) for size, stride in pairs)
        return stored * self.element_type.byte_size

    @property
    def is_packed(self) -> bool:
        """True if the view is row-major without gaps, at any offset."""
        if self.num_elements == 0:
            return True
        expected = dense_strides(self.dims, self.element_type.byte_size)
        return all(
            size == 1 or stride == want
            for size, stride, want in zip(self.dims, self.strides, expected, strict=True)
        )

    @property
    def is_dense(self) -> bool:
        """True if the view is row-major without gaps, at offset 0."""
        return self.is_packed and self.offset == 0

    def with_type(self, element_type: PrimitiveType) -> StridedView:
        """Return the view with another element type, which must have the same size."""
        return StridedView(element_type, self.dims, self.strides, self.offset)

    def transpose(self, permutation: tuple[int, ...]) -> StridedView:
        """Return the view whose dimension i is dimension ``permutation[i]`` of this one, as in HLO."""
        return StridedView(
            self.element_type,
            tuple(self.dims[d] for d in permutation),
            tuple(self.strides[d] for d in permutation),
            self.offset,
        )

    def broadcast(self, dims: tuple[int, ...], dimensions: tuple[int, ...]) -> StridedView:
        """Return the view broadcast to sizes ``dims``, as in HLO: dimension i becomes dimension ``dimensions[i]``.

        The other dimensions of the result, and dimensions of size 1 that grow, get stride 0.
        """
        strides = [0] * len(dims)
        for source, target in enumerate(dimensions):
            if dims[target] == self.dims[source]:
                strides[target] = self.strides[source]
        return StridedView(self.element_type, dims, tuple(strides), self.offset)

    def slice(
        self, starts: tuple[int, ...], limits: tuple[int, ...], steps: tuple[int, ...]
    ) -> StridedView:
        """Return the elements at indices starts[d], starts[d] + steps[d], ... below limits[d] of each dimension d."""
        offset, dims, strides = self.offset, [], []
        for start, limit, step, stride in zip(starts, limits, steps, self.strides, strict=True):
            offset += start * stride
            dims.append(max(0, -(-(limit - start) // step)))
            strides.append(stride * step)
        return StridedView(self.element_type, tuple(dims), tuple(strides), offset)

    def reverse(self, dimensions: tuple[int, ...]) -> StridedView:
        """Return the view with the order of elements reversed along ``dimensions``."""
        strides = list(self.strides)
        offset = self.offset
        for d in dimensions:
            offset += (self.dims[d] - 1) * strides[d]
            strides[d] = -strides[d]
        return StridedView(self.element_type, self.dims, tuple(strides), offset)

    def reshape(self, dims: tuple[int, ...]) -> StridedView | None:
        """Return the view with sizes ``dims`` and the same row-major element order.

        Returns None if strides cannot describe it.
        """
        if self.num_elements == 0:
            packed = dense_strides(dims, self.element_type.byte_size)
            return StridedView(self.element_type, dims, packed, self.offset)
        strides = _reshaped_strides(self.dims, self.strides, dims)
        if strides is None:
            return None
        return StridedView(self.element_type, dims, strides, self.offset)


def dense_strides(dims: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    """Return the strides of a row-major array without gaps, in the unit of ``item_bytes``, the size of an element."""
    strides = [0] * len(dims)
    step = item_bytes
    for d in range(len(dims) - 1, -1, -1):
        strides[d] = step
        step *= dims[d]
    return tuple(strides)


def _reshaped_strides(
    old: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the strides of sizes ``new`` for an array with sizes ``old``, or None if there are none.

    Runs of old dimensions are matched to runs of new ones of equal product. The elements of each old run must be evenly
    spaced.
    """
    source = [(n, s) for n, s in zip(old, strides, strict=True) if n != 1]
    result = [0] * len(new)
    i = 0
    j = 0
    while j < len(new):
        if new[j] == 1:
            j += 1
            continue
        start_i, start_j = i, j
        old_count, new_count = source[i][0], new[j]
        i, j = i + 1, j + 1
        while old_count != new_count:
            if old_count < new_count:
                old_count *= source[i][0]
                i += 1
            else:
                new_count *= new[j]
                j += 1
        for k in range(start_i, i - 1):
            if source[k][1] != source[k + 1][0] * source[k + 1][1]:
                return None
        step = source[i - 1][1]
        for k in range(j - 1, start_j - 1, -1):
            result[k] = step
            step *= new[k]
    return tuple(result)


# ---- offsets and ranges that depend on values known only at run time


@dataclass(frozen=True, slots=True)
class Shift:
    """Offset of a dynamic slice along one dimension: run-time start ``start``, clamped to [0, ``limit``], times stride.

    ``start`` is a number among the run-time starts of a kernel; ``stride`` is in bytes.
    """

    start: int
    limit: int
    stride: int


@dataclass(frozen=True, slots=True)
class Range:
    """Restriction of a loop to the indices i of ``dimension`` with first <= i + s < end.

    s is the run-time start number ``start``, clamped to [0, ``limit``]. If ``dimension`` is None, i is 0: the range
    decides whether the loop runs at all.
    """

    dimension: int | None
    start: int
    limit: int
    first: int
    end: int

    def is_of(self, other: Range) -> bool:
        """Return whether ``other`` has the same dimension, start and limit, so that only the bounds may differ."""
        return (self.dimension, self.start, self.limit) == (
            other.dimension,
            other.start,
            other.limit,
        )


# ---- orders of dimensions


#: A loop runs over tiles of its two innermost dimensions only if both have at least this size.
LEAST_TILED = 8
#: An innermost size up to FEW_NEIGHBOURS fills too little of a vector (such as the coordinates in [n,3]). At least
#: VECTOR_LENGTH elements fill one. MOST_STRIDE is the largest stride, in bytes (a cache line), of elements that a
#: vectorized loop may read.
FEW_NEIGHBOURS, VECTOR_LENGTH, MOST_STRIDE = 8, 16, 64


class Strided(Protocol):
    """Object with ``strides``, in bytes along each dimension, and ``item``, the bytes of an element."""

    @property
    def strides(self) -> tuple[int, ...]: ...

    @property
    def item(self) -> int: ...


def in_streaming_order(dims: Sequence[int], arrays: Sequence[Strided], inputs: int) -> list[int]:
    """Return the order of loop dimensions, outermost first, that accesses most memory contiguously.

    The innermost dimension is the one along which arrays with the most bytes are contiguous; the next one is the second
    best. The other dimensions are sorted by the strides of the last array, a result, largest first.

    dims: sizes of the loop. arrays: accesses along ``dims``; ``arrays[:inputs]`` are read, the others are written. An
    array counts with the bytes that it stores, so a broadcast counts once. Written bytes count twice, since a cache
    line is fetched before it is written.
    """
    order = sorted(range(len(dims)), key=lambda d: -abs(arrays[-1].strides[d]))
    wide = [d for d in order if dims[d] > 1]
    if not wide:
        return order

    weights = [1] * inputs + [2] * (len(arrays) - inputs)
    moved = [
        weight * array.item * math.prod(dims[d] for d in wide if array.strides[d])
        for weight, array in zip(weights, arrays, strict=True)
    ]

    def packed_bytes(d: int) -> int:
        each = zip(moved, arrays, strict=True)
        return sum(size for size, array in each if array.strides[d] == array.item)

    inner = max(reversed(wide), key=packed_bytes)
    others = [d for d in wide if d != inner and packed_bytes(d)]
    last = [inner] if not others else [max(reversed(others), key=packed_bytes), inner]
    return [d for d in order if d not in last] + last


def long_one_last(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[int]:
    """Return the order of merged loop dimensions whose last one fills vectors, if there is one; else the given order.

    For example, sums over the first dimension of [n,m,3] are vectorized along m. strides: of each array, in bytes.
    """
    order = list(range(len(sizes)))
    if not order or sizes[-1] > FEW_NEIGHBOURS:
        return order
    candidates = [
        d
        for d in order[:-1]
        if sizes[d] >= VECTOR_LENGTH and all(abs(each[d]) <= MOST_STRIDE for each in strides)
    ]
    if not candidates:
        return order
    last = max(candidates, key=lambda d: sizes[d])
    return [*(d for d in order if d != last), last]


def merged_dims(
    dims: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Merge adjacent dimensions whose strides allow it in all arrays, and drop dimensions of size 1.

    dims: sizes of the loop. strides: of each array along ``dims``, in bytes. Returns the merged sizes, and the strides
    of each array along them.
    """
    sizes: list[int] = []
    merged_strides: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(dims):
        if size == 1:
            continue
        if sizes and all(
            own[-1] == size * each[d] for own, each in zip(merged_strides, strides, strict=True)
        ):
            sizes[-1] *= size
            for own, each in zip(merged_strides, strides, strict=True):
                own[-1] = each[d]
        else:
            sizes.append(size)
            for own, each in zip(merged_strides, strides, strict=True):
                own.append(each[d])
    assert math.prod(sizes) == math.prod(dims)
    return sizes, merged_strides


def merged_apart(
    dims: Sequence[int], strides: Sequence[Sequence[int]], apart: Collection[int]
) -> tuple[list[int], list[list[int]], dict[int, int]]:
    """Merge dimensions as ``merged_dims``, but leave the dimensions ``apart`` unmerged.

    Returns the sizes, the strides of each array, and the new number of each of the dimensions ``apart``.
    """
    sizes: list[int] = []
    merged_strides: list[list[int]] = [[] for _ in strides]
    positions = {}
    edges = [-1, *sorted(apart), len(dims)]
    for before, edge in itertools.pairwise(edges):
        between = range(before + 1, edge)
        merged, own = merged_dims(
            [dims[d] for d in between], [[s[d] for d in between] for s in strides]
        )
        if edge < len(dims):
            positions[edge] = len(sizes) + len(merged)
            merged, own = (
                [*merged, dims[edge]],
                [[*o, s[edge]] for o, s in zip(own, strides, strict=True)],
            )
        sizes += merged
        for all_of_one, more in zip(merged_strides, own, strict=True):
            all_of_one += more
    return sizes, merged_strides, positions
