"""Kernel gradients on the tile unit: layout of images in planes, and the lines and columns of each product.

x is the input of the convolution, and w the gradient of its result, which is the window of the gradient's convolution.
Sums are over the positions and images of w.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import F32_TYPES
from runtime.cpu.kernels.convolution.tuning import MOST_GROUP_PAIRS, filled
from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window, WindowDimension


@dataclass(frozen=True)
class GradientAxis:
    """Spatial dimension in which position j of w and output o use element j * dilation + o * stride - low of x.

    There are ``size`` elements of x, ``window`` positions of w and ``outputs`` outputs. *Coordinates* count the
    elements of x that can be used, every ``unit``-th one, from element -low on.
    """

    size: int
    window: int
    outputs: int
    dilation: int
    stride: int
    low: int

    @property
    def unit(self) -> int:
        """Return the distance in x of elements that can be used."""
        return math.gcd(self.dilation, self.stride) if self.outputs > 1 else self.dilation

    @property
    def step(self) -> int:
        """Return the distance of consecutive positions of w in coordinates."""
        return self.dilation // self.unit

    def coordinate(self, output: int) -> int:
        """Return the coordinate that ``output`` and position 0 of w use."""
        return output * self.stride // self.unit

    def extent(self, positions: int) -> int:
        """Return the number of coordinates that ``positions`` positions of w use."""
        return (positions - 1) * self.step + self.coordinate(self.outputs - 1) + 1

    def shown(self, positions: int) -> range:
        """Return the coordinates used by ``positions`` positions of w that are elements of x, not padding."""
        first = -(-max(self.low, 0) // self.unit)
        end = min(-(-(self.size + self.low) // self.unit), self.extent(positions))
        return range(first, max(end, first))

    @cached_property
    def pitch(self) -> int:
        """Return the distance of lines in coordinates. A line's end and the next line's begin share padding."""
        shown = self.shown(self.window)
        return max(shown.stop, self.extent(self.window) - shown.start)

    def met(self, output: int) -> range:
        """Return the positions of w that use elements of x, not padding, for ``output``."""
        first = -(-(self.low - output * self.stride) // self.dilation)
        end = -(-(self.size + self.low - output * self.stride) // self.dilation)
        first = max(first, 0)
        return range(first, max(min(end, self.window), first))


def _axis(dim: WindowDimension, size: int, outputs: int) -> GradientAxis | None:
    """Return the axis of a dimension of ``size`` elements of x, or None if it has base dilation or is reversed."""
    if dim.base_dilation != 1 or dim.reversal:
        return None
    return GradientAxis(size, dim.size, outputs, dim.window_dilation, dim.stride, dim.padding_low)


@dataclass(frozen=True)
class GradientGeometry:
    """Geometry of x[g, c, h, w, n], w[g, window.., n, f] and out[g, c, out.., f] with two spatial dimensions.

    A word holds one element of a pair of images. w is packed in tiles: the words of a line, [position][pair of a
    group], are ``line_steps`` steps. x is split into planes, [group][line][position][pair of a group][channel]. A group
    has ``group_pairs`` pairs of images. If groups have several pairs and w's positions are dilated, every phase of the
    columns has planes of its own.
    """

    rows: GradientAxis
    columns: GradientAxis
    group_pairs: int = 1

    def arrangements(self, images: int) -> Iterator[GradientGeometry]:
        """Yield this geometry with each possible number of pairs per group of ``images`` images."""
        pairs = -(-images // 2)
        for group_pairs in range(1, min(pairs, MOST_GROUP_PAIRS) + 1):
            if group_pairs == 1 or images % (2 * group_pairs) == 0:
                yield replace(self, group_pairs=group_pairs)

    def groups(self, images: int) -> int:
        """Return the number of groups that ``images`` images form."""
        return -(-images // (2 * self.group_pairs))

    @property
    def column_phases(self) -> int:
        """Return the number of phases of the columns that have planes of their own."""
        return self.columns.step if self.group_pairs > 1 else 1

    @property
    def pitch(self) -> int:
        """Return the number of positions from one line of a plane to the next."""
        return -(-self.columns.pitch // self.column_phases)

    @property
    def row_positions(self) -> int:
        """Return the distance of consecutive positions of w in positions of the planes."""
        return self.columns.step // self.column_phases

    @property
    def line_steps(self) -> int:
        """Return the number of steps of the depth of a line of w, for one group."""
        return -(-self.columns.window * self.group_pairs // LINES)

    def plane_lines(self, lines: int) -> int:
        """Return the number of lines of the planes that ``lines`` lines of w use."""
        return self.rows.extent(lines)

    def plane_elements(self, lines: int, groups: int, channels: int) -> int:
        """Return the number of words of the planes of one part, in all phases."""
        return self.column_phases * self.phase_elements(lines, groups, channels)

    def phase_elements(self, lines: int, groups: int, channels: int) -> int:
        """Return the number of words of the planes of one part and phase, including those read after the last line."""
        position = self.group_pairs * channels
        farthest = self.line_steps * LINES * self.row_positions * self.group_pairs * channels
        across = self.columns.coordinate(self.columns.outputs - 1) // self.column_phases * position
        planes = groups * self.plane_lines(lines) * self.pitch * position
        return -(-(planes + farthest + across + PANEL) // LINES) * LINES

    def left_bytes(self, steps: int, features: int) -> int:
        """Return the size of the packed w of ``steps`` steps and ``features`` features in bytes."""
        return -(-features // PANEL) * steps * F32_TYPES.step_bytes

    def row_steps(self) -> int:
        """Return the number of steps of all outputs along the rows of one group, without lines of padding."""
        outputs = range(self.rows.outputs)
        return self.line_steps * sum(len(self.rows.met(o)) for o in outputs)

    def column_runs(self, channels: int) -> list[tuple[range, int]]:
        """Return the runs of outputs along the columns of one product, each with the product's number of columns.

        Outputs whose channels are adjacent in the planes are joined if that fills tiles better.
        """
        outputs = self.columns.outputs
        joined = outputs * channels
        neighbours = self.group_pairs == 1 and self.columns.coordinate(1) == 1
        if neighbours and filled(joined) < outputs * filled(channels):
            return [(range(outputs), joined)]
        return [(range(o, o + 1), channels) for o in range(outputs)]

    def needed(self, channels: int, images: int, features: int) -> int:
        """Return the number of multiplications of the convolution of one g, those by padding included."""
        window = self.rows.window * self.columns.window
        taps = self.rows.outputs * self.columns.outputs
        return taps * channels * features * images * window

    def multiplied(self, channels: int, images: int, features: int) -> int:
        """Return the number of multiplications of the tile unit that take as long as one g in this arrangement."""
        depth = self.groups(images) * self.row_steps() * F32_TYPES.step_depth
        columns = sum(filled(width) for _, width in self.column_runs(channels))
        return depth * filled(features) * columns


def gradient_geometry(
    window: Window, x: Sequence[int], out: Sequence[int]
) -> GradientGeometry | None:
    """Return the geometry of x and out, of sizes [g, n, spatial.., features], or None if there is none."""
    if window.rank > 2:
        return None
    dims = (*[WindowDimension()] * (2 - window.rank), *window.dims)
    sizes = [[1] * (2 - window.rank) + list(array[2:-1]) for array in (x, out)]
    axes = [_axis(*each) for each in zip(dims, *sizes, strict=True)]
    if axes[0] is None or axes[1] is None:
        return None
    return GradientGeometry(axes[0], axes[1])
