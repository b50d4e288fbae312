"""Convolutions on the tile unit: which lines of which images are in the planes at a time, and the words that say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from runtime.codegen.llvm_convolution_image import ImageWords
from runtime.codegen.llvm_convolution_tiles import FORM, PARTS
from runtime.codegen.llvm_tiles import LINES, PANEL
from runtime.kernels.convolution_axes import Axis, Lines, Part, axis_of, lines_of
from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension


@dataclass(frozen=True)
class ImageTiles:
    """How much is split and packed at a time.

    images: in one panel; where that is 1, ``lines`` of output positions (of the part that has most) at a time.
    block_features: a multiple of 32. channels: a part of the input's; products of the next ones are added. elements: of
    scratch, of 4 bytes.
    """

    images: int
    lines: int
    block_features: int
    channels: int
    elements: int


@dataclass(frozen=True)
class Geometry:
    """x[g, n, h, w, c], w[g, window.., c, f], out[g, n, out.., f] with two spatial dimensions, in the planes.

    Elements, of planes of one part of the numbers.
    """

    rows: Lines
    columns: Axis
    channels: int

    @cached_property
    def pitch(self) -> int:
        """Elements' places of a line, in channels."""
        return self.columns.pitch()

    @property
    def line_positions(self) -> int:
        return self.pitch // self.columns.stride

    @property
    def line_elements(self) -> int:
        return self.pitch * self.channels

    @property
    def row_elements(self) -> int:
        return self.columns.stride * self.channels

    def of_channels(self, channels: int) -> Geometry:
        return replace(self, channels=channels)

    def parts(self) -> list[tuple[Part, Part]]:
        return [(h, w) for h in self.rows.axis.parts for w in self.columns.parts]

    def runs(self, part: tuple[Part, Part]) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Elements of the planes that neighbour each other under a window: phase, first element, taps in order."""
        taps = [
            (phase, line * self.line_elements + column * self.channels, (i, j))
            for i, offset in part[0].taps
            for phase, line in [self.rows.place(offset)]
            for j, column in part[1].taps
        ]
        runs: list[tuple[int, int, list[tuple[int, int]]]] = []
        for phase, start, tap in sorted(taps):
            if runs:
                last_phase, first, before = runs[-1]
                follows = start == first + len(before) * self.channels
                if last_phase == phase and follows and self.channels % FORM.step_depth:
                    before.append(tap)
                    continue
            runs.append((phase, start, [tap]))
        return runs

    def step_count(self, part: tuple[Part, Part]) -> int:
        runs = self.runs(part)
        return max(sum(-(-len(taps) * self.channels // FORM.step_depth) for *_, taps in runs), 1)

    def needed(self, out: Sequence[int]) -> int:
        """Products of elements of one image and group, those with padding too."""
        return sum(
            h.count * w.count * len(h.taps) * len(w.taps) * self.channels * out[-1]
            for h, w in self.parts()
        )

    def multiplied(self, out: Sequence[int]) -> int:
        """Products that tiles make of them."""
        positions = self.rows.pitch * self.line_positions
        columns = -(-out[-1] // LINES) * LINES
        return sum(
            positions * self.step_count(part) * FORM.step_depth * columns for part in self.parts()
        )

    @cached_property
    def _farthest(self) -> int:
        """Where the window of position 0 ends."""
        return max(
            start + -(-len(taps) * self.channels // FORM.step_depth) * FORM.step_depth
            for part in self.parts()
            for _, start, taps in self.runs(part) or [(0, 0, [])]
        )

    def plane_elements(self, lines: int) -> int:
        """Of one phase, with what is read behind its last line."""
        positions = -(-lines * self.line_positions // PANEL) * PANEL
        read = (positions - 1) * self.row_elements + self._farthest
        whole = (lines + self.rows.most_ahead + 1) * self.line_elements
        return -(-max(read, whole) // FORM.step_depth) * FORM.step_depth

    def plane_bytes(self, lines: int) -> int:
        """Of all phases and parts; ``lines`` of positions."""
        return 2 * PARTS * len(self.rows.phases) * self.plane_elements(lines)


def geometry(window: Window, x: Sequence[int], out: Sequence[int]) -> Geometry | None:
    """Of arrays of these sizes, [g, n, spatial.., features]; None where this is no work for it."""
    if window.rank > 2:
        return None
    dims = (*[WindowDimension()] * (2 - window.rank), *window.dims)
    sizes = [[1] * (2 - window.rank) + list(array[2:-1]) for array in (x, out)]
    axes = [axis_of(*each) for each in zip(dims, *sizes, strict=True)]
    if axes[0] is None or axes[1] is None:
        return None
    return Geometry(lines_of(axes[0]), axes[1], x[-1])


@cache
def image_tiles(shape: Geometry, images: int, features: int, budget: int) -> ImageTiles | None:
    """Panels and blocks for ``budget`` bytes of scratch, that split the input least often; None where none fits."""
    plans = [
        plan
        for pieces in range(1, max(shape.channels // FORM.step_depth, 1) + 1)
        if shape.channels % pieces == 0
        for plan in _plans(shape.of_channels(shape.channels // pieces), images, features, budget)
    ]
    outputs = images * features * sum(h.count * w.count for h, w in shape.parts())

    def work(plan: ImageTiles) -> float:
        """Elements that are split, and those of the output that are read and written again."""
        pieces = shape.channels // plan.channels
        panels = -(-images // plan.images) * -(-shape.rows.axis.most_positions // plan.lines)
        ahead = shape.rows.most_ahead if plan.lines < shape.rows.axis.most_positions else 0
        lines = images * shape.rows.axis.size * (1 + ahead / plan.lines)
        times = -(-features // plan.block_features) if panels > 1 else 1
        return times * lines * shape.line_elements + (pieces - 1) * outputs

    return min(plans, key=lambda plan: (work(plan), plan.elements), default=None)


def _plans(shape: Geometry, images: int, features: int, budget: int) -> list[ImageTiles]:
    """The largest panels beside each number of blocks."""
    steps = sum(shape.step_count(part) for part in shape.parts())
    blocks = -(-features // PANEL)
    most = shape.rows.axis.most_positions
    plans = []
    for packed in sorted({-(-blocks // times) for times in range(1, blocks + 1)}):
        packed_bytes = packed * steps * FORM.step_bytes
        fitting = [
            (n, most, shape.plane_bytes(n * shape.rows.pitch)) for n in range(1, images + 1)
        ] + [(1, n, shape.plane_bytes(n)) for n in range(1, most)]
        for at_once, lines, needed in fitting:
            if needed + packed_bytes <= budget:
                elements = (needed + packed_bytes) // 4
                plans.append(ImageTiles(at_once, lines, packed * PANEL, shape.channels, elements))
    return plans


def image_words(
    tiles: ImageTiles,
    shape: Geometry,
    arrays: tuple[NDArray, NDArray, NDArray],
    scratch: NDArray,
    otherwise: tuple[int, int],
) -> ImageWords:
    """x, w and out with a group dimension and two spatial ones; ``otherwise``: code and record for large numbers."""
    x, w, out = arrays
    pieces, shape = shape.channels // tiles.channels, shape.of_channels(tiles.channels)
    rows, columns = shape.rows, shape.columns
    whole = tiles.lines == rows.axis.most_positions
    lines = tiles.images * rows.pitch if whole else tiles.lines
    plane = shape.plane_elements(lines)
    phase_bytes = 2 * plane
    part_bytes = phase_bytes * len(rows.phases)
    skipped = max(-columns.low, 0)
    shown = min(columns.size, columns.reach - columns.low) - skipped
    dense = x.strides[3] == shape.channels * 4
    full = shape.channels % FORM.step_depth == 0
    along = w.strides[-1] != 4 and w.strides[3] == 4 and full
    parts, place = [], 0
    for part in shape.parts():
        steps = shape.step_count(part)
        left, kernel = _steps(shape, part, phase_bytes, w, along)
        parts.append((steps, place, _outputs(tiles, shape, part, lines, out), left, kernel))
        place += steps * FORM.step_bytes * tiles.block_features // PANEL
    return ImageWords(
        x=x.ctypes.data,
        w=w.ctypes.data,
        out=out.ctypes.data,
        planes=scratch.ctypes.data,
        packed=scratch.ctypes.data + PARTS * part_bytes,
        otherwise=otherwise[0],
        otherwise_record=otherwise[1],
        plane_bytes=PARTS * part_bytes,
        part_bytes=part_bytes,
        row_bytes=2 * shape.row_elements,
        image_lines=rows.pitch if whole else tiles.lines + rows.most_ahead,
        image_bytes=x.strides[1],
        lines=rows.axis.size,
        line_bytes=x.strides[2],
        line_step=rows.axis.stride,
        runs=1 if dense or shown <= 0 else shown,
        run_elements=(max(shown, 0) if dense or shown <= 0 else 1) * shape.channels,
        run_bytes=x.strides[3],
        run_plane_bytes=2 * shape.channels,
        skipped_bytes=skipped * x.strides[3],
        plane_skipped_bytes=2 * max(columns.low, 0) * shape.channels,
        plane_line_bytes=2 * shape.line_elements,
        plane_phase_bytes=phase_bytes,
        features=out.shape[-1],
        feature_bytes=w.strides[-1],
        block_features=tiles.block_features,
        out_feature_bytes=out.strides[-1],
        kernel_along=along,
        phases=tuple(phase - rows.axis.low for phase in rows.phases),
        instances=tuple(
            (
                g * x.strides[0] + piece * shape.channels * x.strides[-1],
                g * w.strides[0] + piece * shape.channels * w.strides[3],
                g * out.strides[0],
                int(piece > 0),
            )
            for g in range(len(x))
            for piece in range(pieces)
        ),
        panels=tuple(_panels(tiles, shape, x, out)),
        parts=tuple(parts),
        right_steps=tuple(FORM.step_bytes * i for i in range(max(steps for steps, *_ in parts))),
    )


def _panels(tiles: ImageTiles, shape: Geometry, x: NDArray, out: NDArray) -> list[tuple[int, ...]]:
    rows, images = shape.rows, x.shape[1]
    parts = shape.parts()
    panels = []
    if tiles.lines == rows.axis.most_positions:
        tail = rows.lines - rows.pitch
        for n in range(0, images, tiles.images):
            count = min(tiles.images, images - n)
            positions = count * rows.pitch * shape.line_positions
            lines = count * rows.pitch + max(tail, 0)
            places = (n * x.strides[1], n * out.strides[1])
            panels.append((*places, 0, lines, count, *[positions] * len(parts)))
        return panels
    for n in range(images):
        for first in range(0, rows.axis.most_positions, tiles.lines):
            counts = [max(min(tiles.lines, h.count - first), 0) for h, _ in parts]
            lines = max(counts) + rows.most_ahead
            down = parts[0][0].step * first * out.strides[2]
            places = (n * x.strides[1], n * out.strides[1] + down)
            positions = [count * shape.line_positions for count in counts]
            panels.append((*places, first, lines, 1, *positions))
    return panels


def _steps(
    shape: Geometry, part: tuple[Part, Part], phase_bytes: int, w: NDArray, along: bool
) -> tuple[list[int], list[int]]:
    """Bytes in the planes of each step's first element; bytes in w of each step's elements, -1 for none.

    along: of the first one, and how many there are.
    """
    places: list[int] = []
    kernel: list[int] = []
    channels = np.arange(shape.channels) * w.strides[3]
    for phase, start, taps in shape.runs(part):
        elements = np.concatenate([i * w.strides[1] + j * w.strides[2] + channels for i, j in taps])
        steps = -(-len(elements) // FORM.step_depth)
        first = phase * phase_bytes + 2 * start
        places += [first + 2 * FORM.step_depth * step for step in range(steps)]
        if along:
            for i in range(0, len(elements), FORM.step_depth):
                kernel += [int(elements[i]), min(FORM.step_depth, len(elements) - i)]
        else:
            kernel += [*elements.tolist(), *[-1] * (steps * FORM.step_depth - len(elements))]
    none = [0, 0] if along else [-1] * FORM.step_depth
    return (places, kernel) if places else ([0], none)


def _outputs(
    tiles: ImageTiles, shape: Geometry, part: tuple[Part, Part], lines: int, out: NDArray
) -> NDArray:
    """Bytes in a panel's output of each position, -1 where there is none; whole blocks of positions."""
    h, w = part
    whole = tiles.lines == shape.rows.axis.most_positions
    pitch = shape.rows.pitch if whole else tiles.lines
    image, line = np.divmod(np.arange(lines), pitch)
    column = np.arange(shape.line_positions)
    down = image * out.strides[1] + (h.first + line * h.step) * out.strides[2]
    across = (w.first + column * w.step) * out.strides[3]
    there = (line < h.count)[:, None] & (column < w.count)
    places = np.where(there, down[:, None] + across, -1).ravel()
    return np.pad(places, (0, -len(places) % PANEL), constant_values=-1)
