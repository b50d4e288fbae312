"""Gradients of kernels on the tile unit: how images lie in planes, and which of their lines and columns meet.

x is what the kernel was convolved with, w the gradient of its result: the window of the convolution that makes a
gradient. Sums run over positions of w.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import FORM
from runtime.cpu.kernels.convolution.tile_costs import filled
from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL
from spmd.ops.window import Window, WindowDimension

#: Pairs of images side by side, at most.
MOST_TOGETHER = 8


@dataclass(frozen=True)
class GradientAxis:
    """One spatial dimension: position j of w and output o meet at x's element j * dilation + o * stride - low.

    *Coordinates* number the elements of x from -low on that can be met at all: every ``unit``-th.
    """

    size: int
    window: int
    outputs: int
    dilation: int
    stride: int
    low: int

    @property
    def unit(self) -> int:
        return math.gcd(self.dilation, self.stride) if self.outputs > 1 else self.dilation

    @property
    def step(self) -> int:
        """Coordinates from one position of w to the next."""
        return self.dilation // self.unit

    def coordinate(self, output: int) -> int:
        """Return the coordinate at which ``output`` meets position 0 of w."""
        return output * self.stride // self.unit

    def reach(self, positions: int) -> int:
        """Coordinates that so many positions of w meet."""
        return (positions - 1) * self.step + self.coordinate(self.outputs - 1) + 1

    def shown(self, positions: int) -> range:
        """Coordinates of elements of x, of those that so many positions meet."""
        first = -(-max(self.low, 0) // self.unit)
        end = min(-(-(self.size + self.low) // self.unit), self.reach(positions))
        return range(first, max(end, first))

    @cached_property
    def pitch(self) -> int:
        """From one line to the next, whose zeros at the beginning may be this one's at its end."""
        shown = self.shown(self.window)
        return max(shown.stop, self.reach(self.window) - shown.start)

    def met(self, output: int) -> range:
        """Positions of w that meet elements of x."""
        first = -(-(self.low - output * self.stride) // self.dilation)
        end = -(-(self.size + self.low - output * self.stride) // self.dilation)
        first = max(first, 0)
        return range(first, max(min(end, self.window), first))


def _axis(dim: WindowDimension, size: int, outputs: int) -> GradientAxis | None:
    if dim.base_dilation != 1 or dim.reversal:
        return None
    return GradientAxis(size, dim.size, outputs, dim.window_dilation, dim.stride, dim.padding_low)


@dataclass(frozen=True)
class GradientGeometry:
    """x[g, c, h, w, n], w[g, window.., n, f], out[g, c, out.., f] with two spatial dimensions.

    A word is an element of a pair of images. w is tiles: its words of a line, [position][pair of a group], are
    ``line_steps`` steps. x is planes, [group][line][place][pair of a group][channel]; where several pairs are side by
    side and w's positions lie apart, every phase of the columns has planes of its own. together: pairs of a group.
    """

    rows: GradientAxis
    columns: GradientAxis
    together: int = 1

    def arrangements(self, images: int) -> Iterator[GradientGeometry]:
        pairs = -(-images // 2)
        for together in range(1, min(pairs, MOST_TOGETHER) + 1):
            if together == 1 or images % (2 * together) == 0:
                yield replace(self, together=together)

    def groups(self, images: int) -> int:
        return -(-images // (2 * self.together))

    @property
    def column_phases(self) -> int:
        return self.columns.step if self.together > 1 else 1

    @property
    def pitch(self) -> int:
        """Places of a line."""
        return -(-self.columns.pitch // self.column_phases)

    @property
    def row_places(self) -> int:
        """From one of w's positions to the next, of the same pair."""
        return self.columns.step // self.column_phases

    @property
    def line_steps(self) -> int:
        return -(-self.columns.window * self.together // LINES)

    def plane_lines(self, lines: int) -> int:
        """Return the number of lines of the planes that ``lines`` of w meet."""
        return self.rows.reach(lines)

    def plane_words(self, lines: int, groups: int, channels: int) -> int:
        """Return the words of one part, of all phases."""
        return self.column_phases * self.phase_words(lines, groups, channels)

    def phase_words(self, lines: int, groups: int, channels: int) -> int:
        place = self.together * channels
        farthest = self.line_steps * LINES * self.row_places * self.together * channels
        across = self.columns.coordinate(self.columns.outputs - 1) // self.column_phases * place
        whole = groups * self.plane_lines(lines) * self.pitch * place
        return -(-(whole + farthest + across + PANEL) // LINES) * LINES

    def left_bytes(self, steps: int, features: int) -> int:
        return -(-features // PANEL) * steps * FORM.step_bytes

    def row_steps(self) -> int:
        """The steps of all outputs along the rows of a group; lines of padding count none."""
        outputs = range(self.rows.outputs)
        return self.line_steps * sum(len(self.rows.met(o)) for o in outputs)

    def column_runs(self, channels: int) -> list[tuple[range, int]]:
        """Outputs along the columns that are multiplied together, and how many columns of a product they are.

        Those whose channels are neighbours in the planes are so if that fills tiles better.
        """
        outputs = self.columns.outputs
        together = outputs * channels
        neighbours = self.together == 1 and self.columns.coordinate(1) == 1
        if neighbours and filled(together) < outputs * filled(channels):
            return [(range(outputs), together)]
        return [(range(o, o + 1), channels) for o in range(outputs)]

    def needed(self, channels: int, images: int, features: int) -> int:
        """Products of elements, those with padding too."""
        window = self.rows.window * self.columns.window
        taps = self.rows.outputs * self.columns.outputs
        return taps * channels * features * images * window

    def multiplied(self, channels: int, images: int, features: int) -> int:
        """Products that the unit makes in the time that they take."""
        depth = self.groups(images) * self.row_steps() * FORM.step_depth
        columns = sum(filled(width) for _, width in self.column_runs(channels))
        return depth * filled(features) * columns


def gradient_geometry(
    window: Window, x: Sequence[int], out: Sequence[int]
) -> GradientGeometry | None:
    """Return the geometry of arrays of these sizes, [g, n, spatial.., features]; None if this form does not apply."""
    if window.rank > 2:
        return None
    dims = (*[WindowDimension()] * (2 - window.rank), *window.dims)
    sizes = [[1] * (2 - window.rank) + list(array[2:-1]) for array in (x, out)]
    axes = [_axis(*each) for each in zip(dims, *sizes, strict=True)]
    if axes[0] is None or axes[1] is None:
        return None
    return GradientGeometry(axes[0], axes[1])
