"""Outputs of a convolution along one spatial dimension, and the input elements that they read.

Holes of base dilation and strides are removed from the description.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension


@dataclass(frozen=True, slots=True)
class Part:
    """The ``count`` outputs first, first + step, .. of an axis, which all read the window elements ``taps``.

    A tap is (element of the window, offset): the v-th output reads the padded coordinate v * stride + offset of its
    axis. Taps are sorted by offset. If the part computes one output of each of several ``merged_parts``, its taps are
    the union of their offsets, each with the window element of the first part that has the offset.
    """

    first: int
    step: int
    count: int
    taps: tuple[tuple[int, int], ...]
    merged_parts: tuple[Part, ...] = ()

    @property
    def members(self) -> tuple[Part, ...]:
        """Return the merged parts, or this part alone."""
        return self.merged_parts or (self,)

    def element(self, offset: int) -> int | None:
        """Return the window element that is read at ``offset``, or None if there is no tap."""
        return next((j for j, own in self.taps if own == offset), None)


@dataclass(frozen=True, slots=True)
class Axis:
    """Spatial dimension in padded coordinates without holes.

    The input has ``size`` elements, of which element i is at coordinate i + low; all other coordinates are zeros. With
    base dilation b, output o uses every b-th element of the window, and the first of these depends on o modulo b, so
    the outputs form b parts of stride 1. For example, with window size 3, b = 2 and padding 1, outputs 0, 2, .. use
    element 1, and outputs 1, 3, .. use elements 0 and 2.
    """

    size: int
    low: int
    stride: int
    parts: tuple[Part, ...]

    @property
    def extent(self) -> int:
        """Return the number of padded coordinates up to the last one that an output reads."""
        return max(
            (part.count - 1) * self.stride + max((offset for _, offset in part.taps), default=0) + 1
            for part in self.parts
        )

    def merged(self) -> Axis | None:
        """Return the axis with all parts merged into one that computes one output of each, or None if counts differ."""
        if len({part.count for part in self.parts}) > 1:
            return None
        first = self.parts[0]
        taps = {offset: j for part in reversed(self.parts) for j, offset in part.taps}
        in_order = tuple((taps[offset], offset) for offset in sorted(taps))
        return replace(self, parts=(replace(first, taps=in_order, merged_parts=self.parts),))

    @property
    def most_positions(self) -> int:
        """Return the number of outputs of the longest part."""
        return max(part.count for part in self.parts)

    def pitch(self) -> int:
        """Return the distance of consecutive lines in coordinates, a multiple of the stride.

        A line is the coordinates along this axis for one index of the other axis. The padding at the end of a line is
        shared with the beginning of the next one.
        """
        data_end = min(self.low + self.size, self.extent)
        shared = self.extent - max(self.low, 0)
        least = max(data_end, shared, self.most_positions * self.stride)
        return -(-least // self.stride) * self.stride


def axis_of(dim: WindowDimension, size: int, outputs: int) -> Axis | None:
    """Return the axis of a dimension of ``size`` input elements, or None if it has both base dilation and a stride."""
    taps = [
        (j, (dim.size - 1 - j if dim.reversal else j) * dim.window_dilation)
        for j in range(dim.size)
    ]
    if dim.base_dilation == 1:
        in_order = tuple(sorted(taps, key=lambda tap: tap[1]))
        return Axis(size, dim.padding_low, dim.stride, (Part(0, 1, outputs, in_order),))
    if dim.stride != 1:
        return None
    holes = dim.base_dilation
    firsts = range(min(holes, outputs))
    met = [
        [
            (j, (first + t - dim.padding_low) // holes)
            for j, t in taps
            if (first + t - dim.padding_low) % holes == 0
        ]
        for first in firsts
    ]
    low = -min((offset for taps in met for _, offset in taps), default=0)
    return Axis(
        size,
        low,
        1,
        tuple(
            Part(
                first,
                holes,
                -(-(outputs - first) // holes),
                tuple(sorted(((j, t + low) for j, t in own), key=lambda tap: tap[1])),
            )
            for first, own in zip(firsts, met, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True)
class Lines:
    """Axis as lines grouped by phase: coordinate v * stride + phase is line v of ``phase``, so that strides become 1.

    ``pitch`` is the number of lines from one image to the next, ``lines`` that of the last image of a panel, and
    ``most_ahead`` the largest distance in lines from an output to a line that it reads.
    """

    axis: Axis
    phases: tuple[int, ...]
    lines: int
    pitch: int
    most_ahead: int

    def phase_and_line(self, offset: int) -> tuple[int, int]:
        """Return the number of the phase, and the line, that a tap at ``offset`` reads for output 0."""
        return self.phases.index(offset % self.axis.stride), offset // self.axis.stride


def lines_of(axis: Axis) -> Lines:
    """Return the lines of ``axis``."""
    step, low = axis.stride, axis.low
    offsets = [offset for part in axis.parts for _, offset in part.taps] or [0]
    phases = tuple(sorted({offset % step for offset in offsets}))
    lines = max(
        part.count + max((offset // step for _, offset in part.taps), default=0)
        for part in axis.parts
    )
    zero_lines = min(max(-(-(low - phase) // step), 0) for phase in phases)
    data_end = min(max((axis.size - 1 + low - phase) // step + 1 for phase in phases), lines)
    return Lines(
        axis,
        phases,
        lines,
        max(data_end, lines - zero_lines, axis.most_positions),
        max(offset // step for offset in offsets),
    )


def coordinate_tables(
    window: Window, x: NDArray, out: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return, per spatial dimension, the byte offset in x of each padded coordinate, or -1 in padding and holes.

    ``out`` and ``sizes`` are the spatial sizes of the result and of the window. Offsets are relative to the lowest
    address of x along the spatial dimensions; the second result is the offset of that address from element 0 in bytes.
    """
    tables: list[tuple[int, ...]] = []
    start = 0
    for d, dim in enumerate(window.dims):
        size, stride = x.shape[2 + d], x.strides[2 + d]
        lowest = min(0, (size - 1) * stride)
        start += lowest
        extent = (out[d] - 1) * dim.stride + (sizes[d] - 1) * dim.window_dilation + 1
        table = []
        for coordinate in range(extent):
            index, hole = divmod(coordinate - dim.padding_low, dim.base_dilation)
            inside = 0 <= index < size and not hole
            table.append(index * stride - lowest if inside else -1)
        tables.append(tuple(table))
    return tuple(tables), start


def expanded(
    window: Window, x: NDArray, w: NDArray, out: NDArray, rank: int
) -> tuple[Window, NDArray, NDArray, NDArray]:
    """Return the window, x, w and out with ``rank`` spatial dimensions. Additional ones come first and have size 1."""
    missing = range(rank - window.rank)
    x, out = (np.expand_dims(array, tuple(2 + d for d in missing)) for array in (x, out))
    w = np.expand_dims(w, tuple(1 + d for d in missing))
    return Window((*[WindowDimension()] * len(missing), *window.dims)), x, w, out
