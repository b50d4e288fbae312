"""Kernel gradients on the tile unit: the choice of panels of both operands, and the record."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np

from runtime.cpu.kernels.convolution.ir.tile_gradient_ir import GradientRecord
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import F32_TYPES, PARTS
from runtime.cpu.kernels.convolution.tile_gradient_geometry import GradientGeometry
from runtime.cpu.kernels.convolution.tuning import ADD, SPLIT, TURN_AND_SPLIT
from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL
from runtime.program.records.convolution import GradientTiles
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray


def split_gradient_elements(
    tiles: GradientTiles, shape: GradientGeometry, channels: int, images: int, features: int
) -> tuple[float, float]:
    """Return how many elements of w and of x are split into parts in one group, counting repetitions.

    ``shape`` is the geometry of the plan ``tiles``.
    """
    again = shape.plane_lines(tiles.lines) / shape.plane_lines(shape.rows.window)
    panels = -(-shape.rows.window // tiles.lines)
    positions = shape.rows.window * shape.columns.window
    positions_of_x = len(shape.rows.shown(shape.rows.window)) * len(
        shape.columns.shown(shape.columns.window)
    )
    return (
        float(positions * images * features * -(-channels // tiles.channels)),
        panels * again * positions_of_x * images * channels * -(-features // tiles.features),
    )


@cache
def gradient_tiles(
    plain: GradientGeometry,
    channels: int,
    images: int,
    features: int,
    budget: int,
    most_multiplied: float,
) -> tuple[float, GradientTiles] | None:
    """Return the cost for one group, and the plan of least cost for ``budget`` bytes of scratch, or None.

    The cost is in multiplications of the unit (see tuning). There is no plan if none fits, or if the unit would
    multiply more than ``most_multiplied`` times the useful products.
    """
    sizes = channels, images, features
    outputs = plain.rows.outputs * plain.columns.outputs * channels * features
    most = most_multiplied * plain.needed(*sizes)
    found: list[tuple[float, GradientTiles]] = []
    shapes = [(one.multiplied(*sizes), one) for one in plain.arrangements(images)]
    for multiplied, shape in sorted(shapes, key=lambda each: each[0]):
        if multiplied > most or any(multiplied > cost for cost, _ in found):
            break
        for c, f in itertools.product(_pieces(channels), _pieces(features)):
            tiles = _largest(shape, min(c, channels), images, f, budget)
            if tiles is None:
                continue
            left, right = split_gradient_elements(tiles, shape, *sizes)
            panels = -(-images // tiles.images) * -(-shape.rows.window // tiles.lines)
            cost = multiplied + TURN_AND_SPLIT * left + SPLIT * right + ADD * panels * outputs
            found.append((cost, tiles))
    return min(found, key=lambda plan: (plan[0], plan[1].elements), default=None)


def _pieces(size: int) -> list[int]:
    """Return the possible sizes of equal parts of ``size``, multiples of 32."""
    panels = -(-size // PANEL)
    return sorted({-(-panels // parts) * PANEL for parts in range(1, panels + 1)})


def _largest(
    shape: GradientGeometry, channels: int, images: int, features: int, budget: int
) -> GradientTiles | None:
    """Return the plan of the largest panel that fits in ``budget`` bytes, or None if none fits.

    The panel has all lines of some groups of images, or some lines of one group.
    """
    full = shape.rows.window
    groups = shape.groups(images)
    sizes = [(-(-groups // parts), full) for parts in range(1, groups + 1)]
    sizes += [(1, -(-full // parts)) for parts in range(2, full + 1)]
    for at_once, lines in sizes:
        steps = at_once * lines * shape.line_steps
        plane = PARTS * 4 * shape.plane_elements(lines, at_once, channels)
        needed = shape.left_bytes(steps, features) + plane
        if needed <= budget:
            pieces = -(-channels // PANEL) * PANEL
            images_of_group = 2 * shape.group_pairs
            return GradientTiles(
                shape.group_pairs, at_once * images_of_group, lines, pieces, features, needed // 4
            )
    return None


def gradient_record(
    tiles: GradientTiles,
    shape: GradientGeometry,
    arrays: tuple[NDArray, NDArray, NDArray],
    scratch: NDArray,
    otherwise_record: int,
) -> GradientRecord:
    """Return the record of x, w and out, which have two spatial dimensions.

    ``otherwise_record`` is the address of the record of the fallback. The address of its code is written into the
    returned record later (NativeCall.callees).
    """
    x, w, out = arrays
    rows, columns = shape.rows, shape.columns
    channels = min(tiles.channels, out.shape[1])
    groups = shape.groups(tiles.images)
    steps = groups * tiles.lines * shape.line_steps
    position_bytes = 4 * channels * shape.group_pairs
    part_bytes = 4 * shape.plane_elements(tiles.lines, groups, channels)
    left_bytes = shape.left_bytes(steps, tiles.features)
    line_bytes = shape.pitch * position_bytes
    group_bytes = shape.plane_lines(tiles.lines) * line_bytes
    dense = columns.unit == shape.column_phases == shape.group_pairs == 1
    dense = dense and x.strides[3] == 4 * channels
    phase_bytes = part_bytes // shape.column_phases
    tables = _OffsetTables.of(tiles, shape, group_bytes, line_bytes, 4 * channels)
    taps, output_offsets = _taps(
        shape, channels, tiles.channels < out.shape[1], line_bytes, part_bytes, out
    )
    instances, panels = (
        list(_instances(tiles, x, w, out)),
        list(_panels(tiles, shape, tables, x, w)),
    )
    phases = [
        (skipped, phase * phase_bytes + offset * position_bytes, min(runs, 1) if dense else runs)
        for phase in range(shape.column_phases)
        for skipped, offset, runs in [_columns_shown(shape, phase, x)]
    ]
    return GradientRecord(
        x=x.ctypes.data,
        w=w.ctypes.data,
        out=out.ctypes.data,
        left=scratch.ctypes.data,
        plane=scratch.ctypes.data + left_bytes,
        otherwise=0,
        otherwise_record=otherwise_record,
        x_image_bytes=x.strides[-1],
        w_image_bytes=w.strides[3],
        group_pairs=shape.group_pairs,
        w_line_bytes=w.strides[1],
        line_steps=shape.line_steps,
        panel_lines=tiles.lines,
        panel_bytes=steps * F32_TYPES.step_bytes,
        plane_bytes=PARTS * part_bytes,
        part_bytes=part_bytes,
        row_bytes=4 * channels * shape.row_positions,
        plane_lines=shape.plane_lines(tiles.lines),
        plane_line_bytes=line_bytes,
        lines=rows.size,
        line_bytes=x.strides[2],
        line_unit=rows.unit,
        run_elements=len(columns.shown(columns.window)) * channels if dense else 0,
        run_bytes=columns.unit * shape.column_phases * x.strides[3],
        run_plane_bytes=position_bytes,
        plane_pair_bytes=4 * channels,
        out_feature_bytes=out.strides[-1],
        dense=out.strides[-1] == 4,
        instance_count=len(instances),
        panel_count=len(panels),
        phase_count=len(phases),
        tap_count=len(taps),
        panel_stride=len(panels[0]),
        instances=instances,
        panels=panels,
        phases=phases,
        taps=taps,
        positions=_positions(shape, w),
        left_steps=tables.left,
        right_steps=tables.right,
        offsets=output_offsets,
        lane_offsets=[f * out.strides[-1] for f in range(PANEL)],
    )


@dataclass(frozen=True)
class _OffsetTables:
    """Offsets of each step's tiles in the packed w (``left``) and in the planes of x (``right``), in bytes.

    ``starts`` are the first entries of several tables: that of all lines of a panel and, if a panel has all lines, one
    for each output along the rows, with the lines that the output uses.
    """

    left: list[int]
    right: list[int]
    starts: list[int]

    @staticmethod
    def of(
        tiles: GradientTiles, shape: GradientGeometry, group_bytes: int, line_bytes: int, row: int
    ) -> _OffsetTables:
        """Return the tables of the plan ``tiles``. ``row`` is the distance of two positions in the planes in bytes."""
        groups = shape.groups(tiles.images)
        row *= shape.row_positions
        left: list[int] = []
        right: list[int] = []
        starts: list[int] = []

        def add(lines: Sequence[int]) -> None:
            """Add the table of ``lines`` of every group."""
            starts.append(len(left))
            for group, line, step in itertools.product(
                range(groups), lines, range(shape.line_steps)
            ):
                number = (group * tiles.lines + line) * shape.line_steps + step
                left.append(F32_TYPES.step_bytes * number)
                down = group * group_bytes + line * shape.rows.step * line_bytes
                right.append(down + step * LINES * row)

        add(range(tiles.lines))
        if tiles.lines == shape.rows.window:
            for output in range(shape.rows.outputs):
                add(shape.rows.met(output))
        return _OffsetTables(left, right, starts)


def _instances(
    tiles: GradientTiles, x: NDArray, w: NDArray, out: NDArray
) -> list[tuple[int, int, int, int, int]]:
    """Return the instances of a GradientRecord: blocks of channels and features of each group."""
    channels, features = out.shape[1], out.shape[-1]
    return [
        (
            g * x.strides[0] + c * x.strides[1],
            g * w.strides[0] + f * w.strides[-1],
            g * out.strides[0] + c * out.strides[1] + f * out.strides[-1],
            min(tiles.channels, channels - c),
            min(tiles.features, features - f),
        )
        for g in range(len(x))
        for c in range(0, channels, tiles.channels)
        for f in range(0, features, tiles.features)
    ]


def _panels(
    tiles: GradientTiles, shape: GradientGeometry, tables: _OffsetTables, x: NDArray, w: NDArray
) -> list[tuple[int, ...]]:
    """Return the panels of a GradientRecord, each with its images and lines of w, and the steps of each output."""
    rows, images = shape.rows, x.shape[-1]
    is_full = tiles.lines == rows.window
    panels = []
    for n in range(0, images, tiles.images):
        count = min(tiles.images, images - n)
        groups = shape.groups(count)
        for first in range(0, rows.window, tiles.lines):
            lines = range(first, min(first + tiles.lines, rows.window))
            steps: list[int] = []
            for output in range(rows.outputs):
                met = rows.met(output)
                if is_full:
                    steps += [tables.starts[1 + output], groups * len(met) * shape.line_steps]
                    continue
                here = range(max(met.start, lines.start), min(met.stop, lines.stop))
                begin = max(here.start - first, 0) * shape.line_steps if here else 0
                steps += [begin, len(here) * shape.line_steps]
            down = first * rows.step * rows.unit - rows.low
            offsets = (n * x.strides[-1], n * w.strides[3] + first * w.strides[1])
            panels.append((*offsets, count, groups, len(lines), down, *steps))
    return panels


def _columns_shown(shape: GradientGeometry, phase: int, x: NDArray) -> tuple[int, int, int]:
    """Return the columns of ``phase`` that exist in x.

    The result is the byte offset of the first one in a line of x, its position in a line of the planes, and their
    number.
    """
    columns, phases = shape.columns, shape.column_phases
    shown = columns.shown(columns.window)
    first = shown.start + (phase - shown.start) % phases
    skipped = (first * columns.unit - columns.low) * x.strides[3]
    return skipped, first // phases, max(-(-(shown.stop - first) // phases), 0)


def _taps(
    shape: GradientGeometry,
    channels: int,
    in_pieces: bool,
    line_bytes: int,
    part_bytes: int,
    out: NDArray,
) -> tuple[list[tuple[int, int, int, int]], list[int]]:
    """Return the taps of a GradientRecord, and the offset in the output of each column of their products in bytes.

    These offsets are padded with -1 to full blocks of 32.
    """
    phases = shape.column_phases
    phase_bytes = part_bytes // phases
    taps: list[tuple[int, int, int, int]] = []
    output_offsets: list[int] = []
    single = [(range(o, o + 1), 0) for o in range(shape.columns.outputs)]
    for i in range(shape.rows.outputs):
        for outputs, width in single if in_pieces else shape.column_runs(channels):
            position, phase = divmod(shape.columns.coordinate(outputs.start), phases)
            across = phase * phase_bytes + position * shape.group_pairs * 4 * channels
            down = shape.rows.coordinate(i) * line_bytes
            taps.append((i, down + across, width, len(output_offsets)))
            own = [
                i * out.strides[2] + j * out.strides[3] + c * out.strides[1]
                for j in outputs
                for c in range(channels)
            ]
            output_offsets += [*own, *[-1] * (-len(own) % PANEL)]
    return taps, output_offsets


def _positions(shape: GradientGeometry, w: NDArray) -> list[int]:
    """Return the offset in a line of w of each word's first image in bytes, padded with -1 to full steps."""
    across = np.arange(shape.columns.window)[:, None] * w.strides[2]
    offsets = (across + np.arange(shape.group_pairs) * 2 * w.strides[3]).ravel().tolist()
    return [*offsets, *[-1] * (-len(offsets) % LINES)]
