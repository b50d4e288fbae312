"""Convolutions on the tile unit: the choice of the lines and images of a panel, and the record."""

from __future__ import annotations

from bisect import bisect_right
from functools import cache

import numpy as np

from runtime.cpu.kernels.convolution.convolution_axes import Axis, Part
from runtime.cpu.kernels.convolution.ir.tile_image_ir import ImageRecord
from runtime.cpu.kernels.convolution.ir.tile_image_pack_ir import KernelAddressing
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import F32_TYPES, PARTS
from runtime.cpu.kernels.convolution.tile_image_geometry import Geometry, Unit
from runtime.cpu.kernels.convolution.tuning import ADD, SPLIT
from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL
from runtime.program.records.convolution import ImageTiles
from spmd.literal import NDArray


def split_image_elements(tiles: ImageTiles, shape: Geometry, images: int, features: int) -> float:
    """Return how many input elements of one group are split into parts, counting repetitions for panels and blocks.

    ``shape`` is the arranged geometry, of any number of channels.
    """
    most = shape.rows.axis.most_positions
    panels = -(-images // tiles.images) * -(-most // tiles.lines)
    ahead = shape.rows.most_ahead / tiles.lines if tiles.lines < most else 0.0
    times = -(-features // tiles.block_features) if panels > 1 else 1
    return times * images * (1 + ahead) * shape.met_elements


@cache
def image_tiles(
    plain: Geometry, images: int, features: int, budget: int, most_multiplied: float
) -> tuple[float, ImageTiles] | None:
    """Return the cost for one group, and the plan of least cost for ``budget`` bytes of scratch, or None.

    The cost is in multiplications of the unit (see tuning). There is no plan if none fits, or if the unit would
    multiply more than ``most_multiplied`` times the useful products.
    """
    outputs = images * features * sum(h.count * w.count for h, w in plain.parts())
    most = most_multiplied * plain.needed(features)
    best: tuple[float, int, ImageTiles] | None = None
    shapes = [(one.multiplied(features), one) for one in plain.arrangements(images, features)]
    for multiplied, shape in sorted(shapes, key=lambda each: each[0]):
        if multiplied > most or (best is not None and images * multiplied > best[0]):
            break
        for pieces in range(1, max(plain.channels // F32_TYPES.step_depth, 1) + 1):
            if plain.channels % pieces:
                continue
            piece = shape.of_channels(plain.channels // pieces)
            least = pieces * images * piece.multiplied(features) + ADD * (pieces - 1) * outputs
            for tiles in _plans(piece, images, features, budget):
                cost = least + SPLIT * split_image_elements(tiles, shape, images, features)
                if best is None or (cost, tiles.elements) < best[:2]:
                    best = (cost, tiles.elements, tiles)
    return None if best is None else (best[0], best[2])


def _plans(shape: Geometry, images: int, features: int, budget: int) -> list[ImageTiles]:
    """Return plans for each possible number of packed blocks of 32 features.

    A panel is one group of images or all groups, if that fits in ``budget``; otherwise it has the most lines of one
    group that fit. If lines share no input, panels of one line are as good as larger ones, and need less memory.
    """
    steps = sum(shape.step_count(part) for part in shape.parts())
    blocks = -(-features // PANEL)
    most, groups = shape.rows.axis.most_positions, images // shape.group_images
    entire = {n: shape.plane_bytes(n * shape.rows.pitch) for n in sorted({1, groups})}
    by_itself = shape.arrangement.by_line and shape.rows.most_ahead == 0
    plans = []
    for packed in sorted({-(-blocks // times) for times in range(1, blocks + 1)}):
        left = budget - packed * steps * F32_TYPES.step_bytes
        fitting = [(n, most, planes) for n, planes in entire.items() if planes <= left]
        if by_itself or not fitting:
            fitting_lines = bisect_right(range(1, most), left, key=shape.plane_bytes)
            lines = min(fitting_lines, 1) if by_itself else fitting_lines
            fitting += [(1, lines, shape.plane_bytes(lines))] if lines else []
        plans += [
            ImageTiles(
                shape.arrangement,
                n * shape.group_images,
                lines,
                packed * PANEL,
                shape.channels,
                (budget - left + planes) // 4,
            )
            for n, lines, planes in fitting
        ]
    return plans


def image_record(
    tiles: ImageTiles,
    plain: Geometry,
    arrays: tuple[NDArray, NDArray, NDArray],
    scratch: NDArray,
    otherwise_record: int,
) -> tuple[ImageRecord, list[NDArray]]:
    """Return the record of x, w and out, which have two spatial dimensions, and the tables to which it points.

    ``otherwise_record`` is the address of the record of the fallback for numbers out of range. The address of its code
    is written into the returned record later (NativeCall.callees). The caller must keep the tables alive.
    """
    x, w, out = arrays
    pieces = plain.channels // tiles.channels
    arranged = plain.of_channels(tiles.channels).arranged(tiles.arrangement)
    assert arranged is not None, "the plan is of this shape"
    shape = arranged
    rows, columns = shape.rows, shape.columns
    groups = tiles.images // shape.group_images
    is_full = tiles.lines == rows.axis.most_positions
    lines = groups * rows.pitch if is_full else tiles.lines
    phase_bytes = 2 * shape.plane_elements(lines)
    part_bytes = phase_bytes * shape.phase_count
    dense = shape.column_step == shape.group_images == 1 and x.strides[3] == shape.channels * 4
    addressing = _kernel_addressing(shape, w)
    parts, alive, offset = [], list[NDArray](), 0
    for part in shape.parts():
        steps = shape.step_count(part)
        left, kernel = _steps(shape, part, phase_bytes, w, addressing)
        tables = [_outputs(tiles, shape, part, lines, out), left, kernel]
        alive += (own := [np.array(table, np.int64) for table in tables])
        parts.append((steps, offset, *(table.ctypes.data for table in own)))
        offset += steps * F32_TYPES.step_bytes * tiles.block_features // PANEL
    panels, units = _panels(tiles, shape, x, out)
    merged = len(shape.members(shape.parts()[0]))
    phases = [
        (shift - rows.axis.low, *_columns_shown(shape, phase, x, dense))
        for shift in rows.phases
        for phase in shape.column_phases
    ]
    instances = [
        (
            g * x.strides[0] + piece * shape.channels * x.strides[-1],
            g * w.strides[0] + piece * shape.channels * w.strides[3],
            g * out.strides[0],
            int(piece > 0),
        )
        for g in range(len(x))
        for piece in range(pieces)
    ]
    record = ImageRecord(
        x=x.ctypes.data,
        w=w.ctypes.data,
        out=out.ctypes.data,
        planes=scratch.ctypes.data,
        packed=scratch.ctypes.data + PARTS * part_bytes,
        otherwise=0,
        otherwise_record=otherwise_record,
        plane_bytes=PARTS * part_bytes,
        part_bytes=part_bytes,
        row_bytes=2 * shape.row_elements,
        image_lines=rows.pitch if is_full else tiles.lines + rows.most_ahead,
        image_bytes=x.strides[1],
        group_images=shape.group_images,
        lines=rows.axis.size,
        line_bytes=x.strides[2],
        line_step=rows.axis.stride,
        run_elements=(max(_shown(columns), 0) if dense else 1) * shape.channels,
        run_bytes=shape.column_step * x.strides[3],
        run_plane_bytes=2 * shape.position_elements,
        plane_image_bytes=2 * shape.channels,
        plane_line_bytes=2 * shape.line_elements,
        plane_phase_bytes=phase_bytes,
        features=out.shape[-1] * merged,
        feature_bytes=w.strides[-1],
        block_features=tiles.block_features,
        out_feature_bytes=out.strides[-1],
        dense=merged == 1 and out.strides[-1] == 4,
        kernel_addressing=addressing,
        phase_count=len(phases),
        instance_count=len(instances),
        panel_count=len(panels),
        part_count=len(parts),
        phases=phases,
        instances=instances,
        panels=panels,
        units=units,
        lane_offsets=_lane_offsets(shape, out),
        parts=parts,
        right_steps=[F32_TYPES.step_bytes * i for i in range(max(steps for steps, *_ in parts))],
    )
    return record, alive


def _shown(columns: Axis) -> int:
    """Return the number of columns of the input that outputs read."""
    return min(columns.size, columns.extent - columns.low) - max(-columns.low, 0)


def _columns_shown(shape: Geometry, phase: int, x: NDArray, dense: bool) -> tuple[int, int, int]:
    """Return for ``phase`` the byte offsets of its first column in lines of x and of the planes, and its runs.

    A line is one run if it is ``dense``, else a run for each column that outputs read.
    """
    columns, step = shape.columns, shape.column_step
    skipped = max(-columns.low, 0)
    first = skipped + (phase - skipped - columns.low) % step
    shown = max(-(-(skipped + _shown(columns) - first) // step), 0)
    position = (first + columns.low) // step
    runs = min(shown, 1) if dense else shown
    return first * x.strides[3], 2 * position * shape.position_elements, runs


def _lane_offsets(shape: Geometry, out: NDArray) -> list[int]:
    """Return the offsets of 32 columns of a product from a position's output, in bytes.

    The columns are features or, if parts are merged, the features of each part.
    """
    features = out.shape[-1]
    members = shape.members(shape.parts()[0])
    if len(members) == 1:
        return [f * out.strides[-1] for f in range(PANEL)]
    offsets = [
        h.first * out.strides[2] + w.first * out.strides[3] + f * out.strides[-1]
        for h, w in members
        for f in range(features)
    ]
    return [*offsets, *[0] * (PANEL - len(offsets))]


def _panels(
    tiles: ImageTiles, shape: Geometry, x: NDArray, out: NDArray
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the panels and the units of an ImageRecord. Panels of equally many images and lines share units."""
    rows, images = shape.rows, x.shape[1]
    most = rows.axis.most_positions
    is_full = tiles.lines == most
    panels: list[tuple[int, ...]] = []
    units: list[tuple[int, ...]] = []
    found: dict[tuple[range, int], tuple[int, int]] = {}
    for n in range(0, images, tiles.images):
        groups = min(tiles.images, images - n) // shape.group_images
        for first in range(0, most, tiles.lines):
            lines = range(first, min(first + tiles.lines, most))
            if (lines, groups) not in found:
                own = [_unit_fields(tiles, shape, unit, out) for unit in shape.units(lines, groups)]
                found[lines, groups] = len(units), len(own)
                units += own
            down = shape.rows.axis.parts[0].step * first * out.strides[2]
            offsets = (n * x.strides[1], n * out.strides[1] + down)
            loaded = groups * rows.pitch + max(rows.lines - rows.pitch, 0)
            if not is_full:
                loaded = len(lines) + rows.most_ahead
            panels.append((*offsets, first, loaded, groups, *found[lines, groups]))
    return panels, units


def _unit_fields(tiles: ImageTiles, shape: Geometry, unit: Unit, out: NDArray) -> tuple[int, ...]:
    """Return the fields of ``unit`` in an ImageRecord."""
    is_full = tiles.lines == shape.rows.axis.most_positions
    stacked = unit.group * (shape.rows.pitch if is_full else 0) + unit.line
    plane = 2 * stacked * shape.line_elements
    down = unit.line * shape.parts()[unit.part][0].step * out.strides[2]
    offset = unit.group * shape.group_images * out.strides[1] + down
    return (unit.part, plane, offset, unit.positions, unit.first_step, unit.steps)


def _kernel_addressing(shape: Geometry, w: NDArray) -> KernelAddressing:
    """Return how the record lists the elements of w."""
    if shape.arrangement.merged:
        return KernelAddressing.EACH
    along = w.strides[-1] != 4 and w.strides[3] == 4 and shape.channels % F32_TYPES.step_depth == 0
    return KernelAddressing.ALONG if along else KernelAddressing.PAIRS


def _steps(
    shape: Geometry,
    part: tuple[Part, Part],
    phase_bytes: int,
    w: NDArray,
    addressing: KernelAddressing,
) -> tuple[list[int], list[int]]:
    """Return the offset in the planes of each step's first element in bytes, and the elements of w of each step.

    The latter are encoded by ``addressing``, and -1 stands for no element.
    """
    offsets: list[int] = []
    kernel: list[int] = []
    for phase, start, taps in shape.runs(part):
        elements = np.concatenate([_tap_elements(shape, part, tap, w) for tap in taps])
        steps = -(-len(elements) // F32_TYPES.step_depth)
        first = phase * phase_bytes + 2 * start
        offsets += [first + 2 * F32_TYPES.step_depth * step for step in range(steps)]
        if addressing is KernelAddressing.ALONG:
            for i in range(0, len(elements), F32_TYPES.step_depth):
                kernel += [int(elements[i, 0]), min(F32_TYPES.step_depth, len(elements) - i)]
            continue
        missing = steps * F32_TYPES.step_depth - len(elements)
        width = LINES if addressing is KernelAddressing.EACH else 1
        padding = (0, missing), (0, width - elements.shape[1])
        kernel += np.pad(elements, padding, constant_values=-1).ravel().tolist()
    return offsets, kernel


def _tap_elements(
    shape: Geometry, part: tuple[Part, Part], tap: tuple[int, int], w: NDArray
) -> NDArray:
    """Return the offsets in w of the elements of a tap in bytes, or -1 for none.

    The shape is [channel, 1], or [channel, feature of each merged part].
    """
    channels = np.arange(shape.channels)[:, None] * w.strides[3]
    columns = []
    for h, v in shape.members(part):
        i, j = h.element(tap[0]), v.element(tap[1])
        features = np.arange(w.shape[-1] if shape.arrangement.merged else 1) * w.strides[-1]
        if i is None or j is None:
            columns.append(np.full((shape.channels, len(features)), -1))
        else:
            columns.append(i * w.strides[1] + j * w.strides[2] + channels + features)
    return np.concatenate(columns, axis=1)


def _outputs(
    tiles: ImageTiles, shape: Geometry, part: tuple[Part, Part], lines: int, out: NDArray
) -> NDArray:
    """Return the offset of each position of a unit in out in bytes, or -1 for none, padded to full blocks of 32."""
    h, w = part
    first = h.first * out.strides[2] + w.first * out.strides[3]
    if shape.arrangement.by_line:
        across = np.arange(w.count)[:, None] * w.step * out.strides[3]
        offsets = (first + across + np.arange(shape.group_images) * out.strides[1]).ravel()
    else:
        is_full = tiles.lines == shape.rows.axis.most_positions
        pitch = shape.rows.pitch if is_full else tiles.lines
        image, line = np.divmod(np.arange(lines), pitch)
        column = np.arange(shape.line_positions)
        down = image * out.strides[1] + line * h.step * out.strides[2]
        there = (line < h.count)[:, None] & (column < w.count)
        across = column * w.step * out.strides[3]
        offsets = np.where(there, first + down[:, None] + across, -1).ravel()
    return np.pad(offsets, (0, -len(offsets) % PANEL), constant_values=-1)
