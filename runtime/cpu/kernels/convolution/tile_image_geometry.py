"""Convolutions on the tile unit: layout of image lines in planes, and units of positions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from runtime.cpu.kernels.convolution.convolution_axes import Axis, Lines, Part, axis_of, lines_of
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import F32_TYPES, PARTS
from runtime.cpu.kernels.convolution.tuning import MOST_GROUP_IMAGES, filled
from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL
from runtime.program.records.convolution import Arrangement
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window, WindowDimension

#: Arrangement in which the rows of a product are the positions of all lines of a panel.
PLAIN = Arrangement()


@dataclass(frozen=True, slots=True)
class Unit:
    """Positions of a part that are the rows of one product: those of ``line`` of ``group``, or of all lines and groups.

    The product has ``steps`` steps of the depth from ``first_step`` on. Parts, groups and lines are numbered from 0.
    """

    part: int
    group: int
    line: int
    positions: int
    first_step: int
    steps: int


@dataclass(frozen=True)
class Geometry:
    """Geometry of x[g, n, h, w, c], w[g, window.., c, f] and out[g, n, out.., f] with two spatial dimensions.

    Sizes are in elements of the planes of one part of the split numbers. A plane is [line][column][image of a
    group][channel]. Every phase of the lines has planes of its own, and, if groups have several images, every phase of
    the columns.
    """

    rows: Lines
    columns: Axis
    channels: int
    arrangement: Arrangement = PLAIN

    def arranged(self, arrangement: Arrangement) -> Geometry | None:
        """Return this plain geometry in ``arrangement``, or None if its parts cannot be merged."""
        if not arrangement.merged:
            return replace(self, arrangement=arrangement)
        rows, columns = self.rows.axis.merged(), self.columns.merged()
        if rows is None or columns is None:
            return None
        return Geometry(lines_of(rows), columns, self.channels, arrangement)

    def arrangements(self, images: int, features: int) -> Iterator[Geometry]:
        """Yield this plain geometry in all arrangements, the simplest first."""
        few = len(self.parts()) > 1 and features * len(self.parts()) <= LINES
        merging = (False, True) if few else (False,)
        for merged in merging:
            groups = [n for n in range(1, min(images, MOST_GROUP_IMAGES) + 1) if images % n == 0]
            choices = [Arrangement(merged=merged)]
            choices += [Arrangement(n, by_line=True, merged=merged) for n in groups]
            yield from filter(None, map(self.arranged, choices))

    def of_channels(self, channels: int) -> Geometry:
        """Return the geometry with another number of channels."""
        return replace(self, channels=channels)

    @property
    def group_images(self) -> int:
        """Return the number of images in a group, which are interleaved."""
        return self.arrangement.interleaved_images

    @property
    def column_step(self) -> int:
        """Return the distance in columns of consecutive positions of a plane's line."""
        return self.columns.stride if self.group_images > 1 else 1

    @cached_property
    def column_phases(self) -> tuple[int, ...]:
        """Return the phases of the columns, modulo ``column_step``, that outputs read."""
        offsets = {offset for part in self.columns.parts for _, offset in part.taps} or {0}
        return tuple(sorted({offset % self.column_step for offset in offsets}))

    @property
    def phase_count(self) -> int:
        """Return the number of phases of lines and columns, each of which has planes of its own."""
        return len(self.rows.phases) * len(self.column_phases)

    @cached_property
    def pitch(self) -> int:
        """Return the number of positions of a line of a group of images."""
        return self.columns.pitch() // self.column_step

    @property
    def line_positions(self) -> int:
        """Return the number of output positions of a line, padding included."""
        return self.pitch * self.column_step // self.columns.stride

    @property
    def position_elements(self) -> int:
        """Return the number of elements of a position of a line."""
        return self.group_images * self.channels

    @property
    def line_elements(self) -> int:
        """Return the distance of lines in elements."""
        return self.pitch * self.position_elements

    @property
    def row_elements(self) -> int:
        """Return the distance of consecutive rows of a product in elements."""
        return self.columns.stride // self.column_step * self.channels

    def parts(self) -> list[tuple[Part, Part]]:
        """Return the parts of the outputs, as pairs of parts along both axes."""
        return [(h, w) for h in self.rows.axis.parts for w in self.columns.parts]

    @staticmethod
    def members(part: tuple[Part, Part]) -> list[tuple[Part, Part]]:
        """Return the merged parts, whose features are consecutive columns of the product."""
        return [(h, w) for h in part[0].members for w in part[1].members]

    def runs(self, part: tuple[Part, Part]) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Return the contiguous runs of plane elements under a window: phase, first element, and taps in order.

        A tap is a pair of offsets along both axes. A run is within one line.
        """
        runs: list[tuple[int, int, list[tuple[int, int]]]] = []
        for _, down in part[0].taps:
            row_phase, line = self.rows.phase_and_line(down)
            own: list[tuple[int, int, list[tuple[int, int]]]] = []
            for phase, position, across in sorted(
                self._phase_and_position(across) for _, across in part[1].taps
            ):
                start = line * self.line_elements + position * self.position_elements
                number = row_phase * len(self.column_phases) + phase
                if own and self.channels % F32_TYPES.step_depth:
                    last_phase, first, before = own[-1]
                    if last_phase == number and start == first + len(before) * self.channels:
                        before.append((down, across))
                        continue
                own.append((number, start, [(down, across)]))
            runs += own
        return runs

    def _phase_and_position(self, across: int) -> tuple[int, int, int]:
        """Return the phase and the position of the column offset ``across``, and the offset itself."""
        position, phase = divmod(across, self.column_step)
        return self.column_phases.index(phase), position, across

    def step_count(self, part: tuple[Part, Part]) -> int:
        """Return the number of steps of the depth for one output of ``part``."""
        return sum(
            -(-len(taps) * self.channels // F32_TYPES.step_depth) for *_, taps in self.runs(part)
        )

    def lines_met(self, part: tuple[Part, Part], line: int) -> tuple[int, int]:
        """Return begin and end of the row taps that read lines of the input, not padding, for position ``line``."""
        axis = self.rows.axis
        met = [
            i
            for i, (_, offset) in enumerate(part[0].taps)
            if 0 <= line * axis.stride + offset - axis.low < axis.size
        ]
        return (met[0], met[-1] + 1) if met else (0, 0)

    def units(self, lines: range, groups: int) -> list[Unit]:
        """Return the units of the positions of ``lines``, of ``groups`` groups of images."""
        units = []
        for number, part in enumerate(self.parts()):
            counted = max(min(lines.stop, part[0].count) - lines.start, 0)
            if not counted or not part[1].count:
                continue
            steps = self.step_count(part)
            if not self.arrangement.by_line:
                is_full = len(lines) == self.rows.axis.most_positions
                counted = groups * self.rows.pitch if is_full else counted
                units.append(Unit(number, 0, 0, counted * self.line_positions, 0, steps))
                continue
            each = steps // max(len(part[0].taps), 1)
            positions = part[1].count * self.group_images
            for group, line in itertools.product(range(groups), range(counted)):
                first, last = self.lines_met(part, lines.start + line)
                units.append(
                    Unit(number, group, line, positions, first * each, (last - first) * each)
                )
        # In this order adjacent outputs are written at about the same time.
        return sorted(units, key=lambda unit: (unit.group, unit.line, unit.part))

    @property
    def met_elements(self) -> float:
        """Return the number of elements of an image that are in the planes, which need not have all phases."""
        lines = self.rows.axis.size * len(self.rows.phases) / self.rows.axis.stride
        columns = self.columns.size * len(self.column_phases) / self.column_step
        return lines * columns * self.channels

    def needed(self, features: int) -> int:
        """Return the number of multiplications of one image and group of this plain geometry, padding included."""
        return sum(
            h.count * w.count * len(h.taps) * len(w.taps) * self.channels * features
            for h, w in self.parts()
        )

    def multiplied(self, features: int) -> float:
        """Return the number of multiplications of the tile unit that take as long as one image of one g."""
        columns = filled(features * len(self.members(self.parts()[0])))
        rows = sum(
            (filled(unit.positions) if self.arrangement.by_line else unit.positions) * unit.steps
            for unit in self.units(range(self.rows.axis.most_positions), 1)
        )
        return rows * F32_TYPES.step_depth * columns / self.group_images

    @cached_property
    def _farthest(self) -> int:
        """Return the end of the window of position 0, in elements."""
        return max(
            start + -(-len(taps) * self.channels // F32_TYPES.step_depth) * F32_TYPES.step_depth
            for part in self.parts()
            for _, start, taps in self.runs(part) or [(0, 0, [(0, 0)])]
        )

    def plane_elements(self, lines: int) -> int:
        """Return the number of elements of one phase, including those that are read after its last line."""
        if self.arrangement.by_line:
            most = max(part.count for part in self.columns.parts) * self.group_images
            positions = -(-most // PANEL) * PANEL
            last = (lines - 1) * self.line_elements
        else:
            positions, last = -(-lines * self.line_positions // PANEL) * PANEL, 0
        read = last + (positions - 1) * self.row_elements + self._farthest
        loaded = (lines + self.rows.most_ahead + 1) * self.line_elements
        return -(-max(read, loaded) // F32_TYPES.step_depth) * F32_TYPES.step_depth

    def plane_bytes(self, lines: int) -> int:
        """Return the size of the planes of all phases and parts in bytes, for ``lines`` lines of all groups."""
        return 2 * PARTS * self.phase_count * self.plane_elements(lines)


def geometry(window: Window, x: Sequence[int], out: Sequence[int]) -> Geometry | None:
    """Return the geometry of x and out, of sizes [g, n, spatial.., features], or None if there is none."""
    if window.rank > 2:
        return None
    dims = (*[WindowDimension()] * (2 - window.rank), *window.dims)
    sizes = [[1] * (2 - window.rank) + list(array[2:-1]) for array in (x, out)]
    axes = [axis_of(*each) for each in zip(dims, *sizes, strict=True)]
    if axes[0] is None or axes[1] is None:
        return None
    return Geometry(lines_of(axes[0]), axes[1], x[-1])
