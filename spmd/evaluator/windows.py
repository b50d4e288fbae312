"""Sliding window over an array: base dilation and padding, and the strided view of one window position."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from spmd.evaluator.value import NDArray, part
from spmd.ops.window import Window


def dilate_and_pad(x: NDArray, window: Window, fill: NDArray) -> NDArray:
    """Return ``x`` with holes of base dilation and padding (negative padding cuts), all filled with the scalar
    ``fill``.
    """
    sizes, inner, source = [], [], []
    for n, dim in zip(x.shape, window.dims, strict=True):
        dilated = (n - 1) * dim.base_dilation + 1 if n else 0
        size = max(dim.padding_low + dilated + dim.padding_high, 0)
        # Elements that stay inside after negative padding.
        first = -(-max(-dim.padding_low, 0) // dim.base_dilation)
        last = min(n, -(-(size - dim.padding_low) // dim.base_dilation))
        start = dim.padding_low + first * dim.base_dilation
        count = max(last - first, 0)
        sizes.append(size)
        inner.append(
            slice(
                start,
                start + max(count - 1, 0) * dim.base_dilation + 1 if count else start,
                dim.base_dilation,
            )
        )
        source.append(slice(first, first + count))
    if all(
        d.base_dilation == 1 and d.padding_low <= 0 and d.padding_high <= 0 for d in window.dims
    ):
        return part(x, source)
    out = np.full(sizes, fill, x.dtype)
    out[tuple(inner)] = x[tuple(source)]
    return out


def offset_view(
    padded: NDArray, window: Window, offset: tuple[int, ...], out: tuple[int, ...]
) -> NDArray:
    """Return element ``offset`` of every window, an array of the output's sizes."""
    index = []
    for position, dim, count in zip(offset, window.dims, out, strict=True):
        start = position * dim.window_dilation
        index.append(
            slice(start, start + (count - 1) * dim.stride + 1 if count else start, dim.stride)
        )
    return part(padded, index)


def offsets(window: Window) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(dim.size) for dim in window.dims))
