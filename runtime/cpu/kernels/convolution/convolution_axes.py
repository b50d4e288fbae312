"""Positions of a convolution along one spatial dimension and the input elements that they meet, without holes and
strides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension


@dataclass(frozen=True, slots=True)
class Part:
    """Outputs first, first + step, ..: ``count`` of them; the v-th one meets ``taps`` (element of the window, offset).

    It meets them at padded coordinate v * stride + offset of its axis. together: parts, one output of each of which is
    one of this part's, too; taps are all that any of them has, with the element that the first such one meets.
    """

    first: int
    step: int
    count: int
    taps: tuple[tuple[int, int], ...]
    together: tuple[Part, ...] = ()

    @property
    def members(self) -> tuple[Part, ...]:
        return self.together or (self,)

    def element(self, offset: int) -> int | None:
        """Return the window element at ``offset``; None if there is no tap."""
        return next((j for j, own in self.taps if own == offset), None)


@dataclass(frozen=True, slots=True)
class Axis:
    """Input element i lies at padded coordinate i + low; all else there is zeros. There are no holes.

    With holes in the input (base dilation b), output o meets every b-th element of the window, and those that it meets
    depend on o modulo b: that makes b parts of stride 1. window size 3, b = 2, padding 1: outputs 0, 2, .. meet
    element 1 alone, outputs 1, 3, .. elements 0 and 2.
    """

    size: int
    low: int
    stride: int
    parts: tuple[Part, ...]

    @property
    def reach(self) -> int:
        """Padded coordinates that are met."""
        return max(
            (part.count - 1) * self.stride + max((offset for _, offset in part.taps), default=0) + 1
            for part in self.parts
        )

    def merged(self) -> Axis | None:
        """One part for all, whose outputs are one of each; None where they have not as many."""
        if len({part.count for part in self.parts}) > 1:
            return None
        first = self.parts[0]
        taps = {offset: j for part in reversed(self.parts) for j, offset in part.taps}
        in_order = tuple((taps[offset], offset) for offset in sorted(taps))
        return replace(self, parts=(replace(first, taps=in_order, together=self.parts),))

    @property
    def most_positions(self) -> int:
        return max(part.count for part in self.parts)

    def pitch(self) -> int:
        """Coordinates from one line of them to the next: zeros at its end may be the next one's at its beginning.

        A multiple of the stride.
        """
        data_end = min(self.low + self.size, self.reach)
        shared = self.reach - max(self.low, 0)
        least = max(data_end, shared, self.most_positions * self.stride)
        return -(-least // self.stride) * self.stride


def axis_of(dim: WindowDimension, size: int, outputs: int) -> Axis | None:
    """None where there are holes and steps at once."""
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
    """An axis by lines of one phase: coordinate v * stride + phase is line v of ``phase``, so that steps are 1.

    pitch: lines from one image to the next; lines: those that the last image of a panel needs.
    """

    axis: Axis
    phases: tuple[int, ...]
    lines: int
    pitch: int
    most_ahead: int

    def place(self, offset: int) -> tuple[int, int]:
        """(which of the phases, line) of a tap."""
        return self.phases.index(offset % self.axis.stride), offset // self.axis.stride


def lines_of(axis: Axis) -> Lines:
    step, low = axis.stride, axis.low
    offsets = [offset for part in axis.parts for _, offset in part.taps] or [0]
    phases = tuple(sorted({offset % step for offset in offsets}))
    lines = max(
        part.count + max((offset // step for _, offset in part.taps), default=0)
        for part in axis.parts
    )
    leading = min(max(-(-(low - phase) // step), 0) for phase in phases)
    data_end = min(max((axis.size - 1 + low - phase) // step + 1 for phase in phases), lines)
    return Lines(
        axis,
        phases,
        lines,
        max(data_end, lines - leading, axis.most_positions),
        max(offset // step for offset in offsets),
    )


def coordinate_tables(
    window: Window, x: NDArray, out: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """For each padded coordinate its bytes from the first element in memory, or -1; and where that element is."""
    tables: list[tuple[int, ...]] = []
    start = 0
    for d, dim in enumerate(window.dims):
        size, stride = x.shape[2 + d], x.strides[2 + d]
        lowest = min(0, (size - 1) * stride)
        start += lowest
        reach = (out[d] - 1) * dim.stride + (sizes[d] - 1) * dim.window_dilation + 1
        table = []
        for coordinate in range(reach):
            index, hole = divmod(coordinate - dim.padding_low, dim.base_dilation)
            inside = 0 <= index < size and not hole
            table.append(index * stride - lowest if inside else -1)
        tables.append(tuple(table))
    return tuple(tables), start
