"""Gradients of kernels on the tile unit: how much of both operands is split at a time, and the words that say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from runtime.codegen.llvm_convolution_gradient import GradientWords
from runtime.codegen.llvm_convolution_tiles import FORM, PARTS
from runtime.codegen.llvm_tiles import LINES, PANEL
from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension

#: Bytes of a position of a pair of images in all parts, per channel or feature.
_PAIR_BYTES = 2 * 2 * PARTS


@dataclass(frozen=True)
class GradientTiles:
    """How much is split and packed at a time.

    images: of one panel, an even number; where that is 2, ``lines`` of positions at a time. channels, features: of
    both operands, multiples of 32. elements: of scratch, of 4 bytes.
    """

    images: int
    lines: int
    channels: int
    features: int
    elements: int


@dataclass(frozen=True)
class SparseAxis:
    """One spatial dimension: the window's element j meets x at j * step + delta of the output's element.

    That is position j + ahead of the elements that are ``phase`` modulo the step: taps are (phase, ahead), one for each
    element of the output. first: of x's positions, by phase (index into ``phases``).
    """

    size: int
    window: int
    step: int
    phases: tuple[int, ...]
    taps: tuple[tuple[int, int], ...]

    def count(self, phase: int) -> int:
        """Positions of that phase."""
        return max(-(-(self.size - self.phases[phase]) // self.step), 0)

    @cached_property
    def positions(self) -> int:
        return max(max(self.count(phase) for phase in range(len(self.phases))), 1)

    @cached_property
    def low(self) -> int:
        """Zeros before the window's first element in the plane, so that position v less ahead is at v + low - ahead."""
        return max(ahead for _, ahead in self.taps)

    @cached_property
    def reach(self) -> int:
        """Of the plane: what all positions meet."""
        return self.positions + self.low - min(ahead for _, ahead in self.taps)

    def pitch(self) -> int:
        """From one line to the next, whose zeros at the beginning may be this one's at its end."""
        data_end = min(self.low + self.window, self.reach)
        return max(data_end, self.reach - max(self.low, 0), self.positions)


def _axis(dim: WindowDimension, size: int, outputs: int) -> SparseAxis | None:
    if dim.base_dilation != 1 or dim.reversal:
        return None
    step = dim.window_dilation
    deltas = [o * dim.stride - dim.padding_low for o in range(outputs)]
    phases = tuple(sorted({delta % step for delta in deltas}))
    taps = tuple((phases.index(delta % step), delta // step) for delta in deltas)
    return SparseAxis(size, dim.size, step, phases, taps)


@dataclass(frozen=True)
class GradientGeometry:
    """x[g, c, h, w, n], w[g, window.., n, f], out[g, c, out.., f] with two spatial dimensions."""

    rows: SparseAxis
    columns: SparseAxis

    @cached_property
    def pitch(self) -> int:
        return self.columns.pitch()

    @property
    def phases(self) -> int:
        return len(self.rows.phases) * len(self.columns.phases)

    @property
    def taps(self) -> int:
        return len(self.rows.taps) * len(self.columns.taps)

    def pair_steps(self, lines: int) -> int:
        return -(-lines * self.pitch // LINES)

    def plane_lines(self, lines: int) -> int:
        """What ``lines`` of positions meet."""
        return lines + self.rows.reach - self.rows.positions

    def plane_words(self, lines: int, features: int) -> int:
        """Of one part, of a pair of images."""
        farthest = (self.plane_lines(lines) - lines) * self.pitch + self.columns.reach
        positions = self.pair_steps(lines) * LINES + farthest
        return -(-(positions * features + PANEL) // LINES) * LINES

    def left_bytes(self, steps: int, channels: int) -> int:
        return self.phases * (-(-channels // PANEL)) * steps * FORM.step_bytes

    def needed(self, channels: int, images: int, features: int) -> int:
        """Products of elements, those with padding too."""
        window = self.rows.window * self.columns.window
        return self.taps * channels * features * images * window

    def multiplied(self, channels: int, images: int, features: int) -> int:
        """Products that tiles make of them."""
        depth = self.pair_steps(self.rows.positions) * LINES * 2 * -(-images // 2)
        lines, columns = (-(-size // LINES) * LINES for size in (channels, features))
        return self.taps * depth * lines * columns


def gradient_geometry(
    window: Window, x: Sequence[int], out: Sequence[int]
) -> GradientGeometry | None:
    """Of arrays of these sizes, [g, n, spatial.., features]; None where this is no work for it."""
    if window.rank > 2:
        return None
    dims = (*[WindowDimension()] * (2 - window.rank), *window.dims)
    sizes = [[1] * (2 - window.rank) + list(array[2:-1]) for array in (x, out)]
    axes = [_axis(*each) for each in zip(dims, *sizes, strict=True)]
    if axes[0] is None or axes[1] is None or axes[1].reach <= abs(axes[1].low):
        return None
    return GradientGeometry(axes[0], axes[1])


@cache
def gradient_tiles(
    shape: GradientGeometry, channels: int, images: int, features: int, budget: int
) -> GradientTiles | None:
    """For ``budget`` bytes of scratch, what splits operands and adds to results least often; None where none fits."""
    plans = [
        plan
        for c in _pieces(channels)
        for f in _pieces(features)
        if (plan := _largest(shape, c, images, f, budget)) is not None
    ]

    def work(plan: GradientTiles) -> float:
        """Elements that are split, and those of the output that are read and written again."""
        panels = -(-images // plan.images) * -(-shape.rows.positions // plan.lines)
        again = shape.plane_lines(plan.lines) / plan.lines
        positions = shape.rows.positions * shape.pitch * images
        left = shape.phases * positions * channels * -(-features // plan.features)
        right = positions * features * -(-channels // plan.channels) * again
        return 2 * left + right + panels * shape.taps * channels * features

    return min(plans, key=lambda plan: (work(plan), plan.elements), default=None)


def _pieces(size: int) -> list[int]:
    """Sizes, multiples of 32, of equal parts."""
    panels = -(-size // PANEL)
    return sorted({-(-panels // parts) * PANEL for parts in range(1, panels + 1)})


def _largest(
    shape: GradientGeometry, channels: int, images: int, features: int, budget: int
) -> GradientTiles | None:
    """The largest panel of these parts."""
    whole = shape.rows.positions
    pairs = -(-images // 2)
    sizes = [(2 * -(-pairs // parts), whole) for parts in range(1, pairs + 1)]
    sizes += [(2, -(-whole // parts)) for parts in range(2, whole + 1)]
    for at_once, lines in sizes:
        steps = at_once // 2 * shape.pair_steps(lines)
        plane = PARTS * 4 * at_once // 2 * shape.plane_words(lines, features)
        needed = shape.left_bytes(steps, channels) + plane
        if needed <= budget:
            return GradientTiles(at_once, lines, channels, features, needed // 4)
    return None


def gradient_words(
    tiles: GradientTiles,
    shape: GradientGeometry,
    arrays: tuple[NDArray, NDArray, NDArray],
    scratch: NDArray,
    otherwise: tuple[int, int],
) -> GradientWords:
    """x, w and out with a group dimension and two spatial ones; ``otherwise``: code and record for large numbers."""
    x, w, out = arrays
    rows, columns = shape.rows, shape.columns
    features = min(tiles.features, w.shape[-1])
    pairs = tiles.images // 2
    pair_steps = shape.pair_steps(tiles.lines)
    steps = pairs * pair_steps
    words = shape.plane_words(tiles.lines, features)
    left_bytes = shape.left_bytes(steps, tiles.channels)
    row_bytes = 4 * features
    shown = max(min(columns.window, columns.reach - columns.low) + min(columns.low, 0), 0)
    skipped = max(-columns.low, 0)
    dense = w.strides[2] == row_bytes
    return GradientWords(
        x=x.ctypes.data,
        w=w.ctypes.data,
        out=out.ctypes.data,
        left=scratch.ctypes.data,
        plane=scratch.ctypes.data + left_bytes,
        otherwise=otherwise[0],
        otherwise_record=otherwise[1],
        x_image_bytes=x.strides[-1],
        w_image_bytes=w.strides[3],
        phase_bytes=left_bytes // shape.phases,
        panel_bytes=steps * FORM.step_bytes,
        phase_positions=pair_steps * LINES,
        pair_steps=pair_steps,
        plane_bytes=PARTS * pairs * 4 * words,
        part_bytes=pairs * 4 * words,
        pair_bytes=4 * words,
        row_bytes=row_bytes,
        plane_lines=shape.plane_lines(tiles.lines),
        plane_line_bytes=shape.pitch * row_bytes,
        lines=rows.window,
        line_bytes=w.strides[1],
        runs=1 if dense else max(shown, 1),
        run_elements=shown * features if dense else 0,
        run_bytes=w.strides[2],
        run_plane_bytes=row_bytes,
        skipped_bytes=skipped * w.strides[2],
        plane_skipped_bytes=max(columns.low, 0) * row_bytes,
        shown_bytes=shown * row_bytes,
        out_feature_bytes=out.strides[-1],
        instances=tuple(_instances(tiles, x, w, out)),
        panels=tuple(_panels(tiles, shape, x, w)),
        taps=tuple(_taps(shape, row_bytes, out)),
        positions=_positions(tiles, shape, x),
        left_steps=[FORM.step_bytes * i for i in range(steps)],
        right_steps=_right_steps(pairs, pair_steps, 4 * words, row_bytes),
        places=(np.arange(-(-out.shape[1] // PANEL) * PANEL) * out.strides[1]).tolist(),
    )


def _right_steps(pairs: int, pair_steps: int, pair_bytes: int, row_bytes: int) -> list[int]:
    """Where the steps of every pair of images begin in the plane."""
    return [
        pair * pair_bytes + step * LINES * row_bytes
        for pair in range(pairs)
        for step in range(pair_steps)
    ]


def _instances(
    tiles: GradientTiles, x: NDArray, w: NDArray, out: NDArray
) -> list[tuple[int, int, int, int, int]]:
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
    tiles: GradientTiles, shape: GradientGeometry, x: NDArray, w: NDArray
) -> list[tuple[int, ...]]:
    rows, images = shape.rows, x.shape[-1]
    panels = []
    for n in range(0, images, tiles.images):
        for first in range(0, rows.positions, tiles.lines):
            counts = [
                max(min(tiles.lines, rows.count(phase) - first), 0) * shape.pitch
                for phase in range(len(rows.phases))
                for _ in shape.columns.phases
            ]
            down = first * rows.step * x.strides[2]
            places = (n * x.strides[-1] + down, n * w.strides[3])
            panels.append((*places, min(tiles.images, images - n), first - rows.low, *counts))
    return panels


def _taps(shape: GradientGeometry, row_bytes: int, out: NDArray) -> list[tuple[int, int, int]]:
    rows, columns = shape.rows, shape.columns
    return [
        (
            row_phase * len(columns.phases) + column_phase,
            ((rows.low - down) * shape.pitch + columns.low - across) * row_bytes,
            i * out.strides[2] + j * out.strides[3],
        )
        for i, (row_phase, down) in enumerate(rows.taps)
        for j, (column_phase, across) in enumerate(columns.taps)
    ]


def _positions(tiles: GradientTiles, shape: GradientGeometry, x: NDArray) -> list[int]:
    """By phase, places in x of a panel's positions, -1 behind the end of a line; whole steps."""
    rows, columns = shape.rows, shape.columns
    found: list[int] = []
    size = shape.pair_steps(tiles.lines) * LINES
    line = np.arange(tiles.lines)[:, None]
    column = np.arange(shape.pitch)
    for row_phase in rows.phases:
        for number, phase in enumerate(columns.phases):
            down = (line * rows.step + row_phase) * x.strides[2]
            across = (column * columns.step + phase) * x.strides[3]
            places = np.where(column < columns.count(number), down + across, -1).ravel().tolist()
            found += [*places, *[-1] * (size - len(places))]
    return found
