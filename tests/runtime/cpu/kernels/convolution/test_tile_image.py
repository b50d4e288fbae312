"""Convolutions whose input is read where it lies, on processors with the tile unit, against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.native.tile_unit_off import without_tile_unit
from runtime.cpu.kernels.convolution.convolution_axes import axis_of, lines_of
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.program.records.convolution import ImageTiles
from spmd.ops.window import WindowDimension
from tests.runtime.cpu.kernels.convolution.convolutions import (
    budget,  # noqa: F401
    convolution,
    kernel_size,
    laid_out,
    tiles_of,
)

if not has_tile_unit():  # hundreds of tests need not be made to be left out
    pytest.skip("no tile unit", allow_module_level=True)


@pytest.mark.parametrize(
    ("window", "out"),
    [
        ("size=3x2", "7,7"),
        ("size=3x2 pad=1_1x1_0", "9,8"),
        ("size=3x2 stride=2x3 pad=1_2x0_1", "5,3"),
        ("size=3x2 pad=2_3x1_1 lhs_dilate=2x3", "20,23"),
        ("size=3x2 pad=0_0x0_0 lhs_dilate=3x2", "23,14"),
        ("size=1x1 pad=0_1x0_2 lhs_dilate=2x3", "18,24"),
        ("size=3x2 rhs_dilate=3x2", "3,6"),
        ("size=3x2 stride=2x2 pad=3_1x2_2 rhs_dilate=2x3", "5,5"),
        ("size=3x2 pad=-1_-2x-1_1", "4,7"),
        ("size=3x2 stride=2x1 pad=-3_1x-2_-2", "3,3"),
        ("size=3x2 pad=5_0x4_6", "12,17"),
        ("size=3x2 pad=1_1x1_0 rhs_reversal=1x1", "9,8"),
        ("size=3x2 pad=1_1x1_0 rhs_reversal=0x1 stride=2x2", "5,4"),
    ],
)
@pytest.mark.parametrize("features", ["5,7", "33,20"])
def test_windows(window: str, out: str, features: str, budget: int) -> None:  # noqa: F811
    inputs, outputs = features.split(",")
    size = kernel_size(window)
    tiles = tiles_of(
        convolution(
            x=f"f32[3,9,8,{inputs}]",
            w=f"f32[{size},{inputs},{outputs}]",
            y=f"f32[3,{out},{outputs}]",
            window=window,
            labels="b01f_01io->b01f",
        )
    )
    assert tiles is not None or budget < 1_000_000


@pytest.mark.parametrize(
    "labels", ["b01f_01io->b01f", "b01f_01oi->b01f", "b01f_oi01->bf01", "01bf_i0o1->f0b1"]
)
@pytest.mark.parametrize("inputs", [3, 64, 96, 40])
def test_layouts_and_depths(labels: str, inputs: int, budget: int) -> None:  # noqa: F811
    """The kernel's features apart, its depth apart, both; the output's features apart; products of parts of the channels."""
    sizes = [
        {"b": 5, "f": inputs, "0": 4, "1": 6},
        {"i": inputs, "o": 35, "0": 3, "1": 3},
        {"b": 5, "f": 35, "0": 4, "1": 6},
    ]
    x, w, y = laid_out(labels, sizes)
    tiles = tiles_of(convolution(x, w, y, "size=3x3 pad=1_1x1_1", labels))
    assert tiles is not None or budget < 1_000_000
    if isinstance(tiles, ImageTiles) and (inputs, budget) == (96, 60_000):
        assert tiles.channels < inputs


@pytest.mark.parametrize(
    ("x", "w", "y", "window", "labels", "more"),
    [
        (
            "f32[2,8,6]",
            "f32[3,2,6]",
            "f32[2,6,6]",
            "size=3",
            "b0f_0io->b0f",
            "feature_group_count=3",
        ),
        ("f32[6,8,5]", "f32[3,5,4]", "f32[3,6,4]", "size=3", "b0f_0io->b0f", "batch_group_count=2"),
        ("f32[4,5]", "f32[5,3]", "f32[4,3]", "", "bf_io->bf", ""),
        ("f32[1,1,9,1]", "f32[1,4,1,1]", "f32[1,1,6,1]", "size=1x4", "b01f_01io->b01f", ""),
    ],
)
def test_groups_and_ranks(x: str, w: str, y: str, window: str, labels: str, more: str) -> None:
    more = f", {more}" if more else ""
    tiles_of(convolution(x, w, y, window, labels, more))


@pytest.mark.parametrize(
    ("x", "window", "out"),
    [
        ("8,7", "size=3x3 pad=1_1x1_1", "8,7"),
        ("9,9", "size=3x4 stride=2x3 pad=1_1x2_1", "5,3"),
        ("5,4", "size=3x3 pad=2_1x2_1 lhs_dilate=2x2", "10,8"),
        ("8,8", "size=1x1 stride=2x2", "4,4"),
        ("4,4", "size=1x1 pad=0_1x0_1 lhs_dilate=2x2", "8,8"),
        ("4,6", "size=3x3 pad=6_0x1_1", "8,6"),
    ],
)
@pytest.mark.parametrize("inputs", [31, 32])
def test_images_side_by_side(x: str, window: str, out: str, inputs: int, budget: int) -> None:  # noqa: F811
    """Lines of a few positions; lines of padding, which some outputs meet alone, are no products."""
    tiles = tiles_of(
        convolution(
            x=f"f32[8,{x},{inputs}]",
            w=f"f32[{kernel_size(window)},{inputs},40]",
            y=f"f32[8,{out},40]",
            window=window,
            labels="b01f_01io->b01f",
        )
    )
    assert isinstance(tiles, ImageTiles) or budget < 1_000_000
    if isinstance(tiles, ImageTiles) and budget == 1_000_000 and "size=1x1" not in window:
        assert tiles.arrangement.interleaved_images > 1


@pytest.mark.parametrize("labels", ["b01f_01io->b01f", "b01f_01oi->b01f", "b01f_oi01->bf01"])
@pytest.mark.parametrize(("outputs", "window"), [(3, "2x2"), (2, "2x4"), (1, "3x3"), (16, "1x1")])
def test_parts_of_few_features(labels: str, outputs: int, window: str, budget: int) -> None:  # noqa: F811
    """The features of all parts between the input's holes are columns of one product."""
    down, across = map(int, window.split("x"))
    sizes = [
        {"b": 3, "f": 40, "0": 5, "1": 6},
        {"i": 40, "o": outputs, "0": 7, "1": 7},
        {"b": 3, "f": outputs, "0": 5 * down, "1": 6 * across},
    ]
    x, w, y = laid_out(labels, sizes)
    pad = f"pad=3_{down + 2}x3_{across + 2} lhs_dilate={window} rhs_reversal=1x1"
    tiles = tiles_of(convolution(x, w, y, f"size=7x7 {pad}", labels))
    if isinstance(tiles, ImageTiles):
        assert tiles.arrangement.merged is (window != "1x1")
    assert tiles is not None or budget < 1_000_000


@pytest.mark.parametrize(
    "value", [1e-42, 3e-39, 1e-30, 3.0, 4e9, 5e9, 3e38, np.inf, -np.inf, np.nan]
)
@pytest.mark.parametrize("operand", [0, 1])
def test_numbers_of_any_size(value: float, operand: int) -> None:
    """Denormal ones have parts; too large ones go through panels. Zeros meet no infinity: padding is NaN with one."""
    rng = np.random.default_rng(0)
    shapes = (2, 5, 5, 4), (3, 3, 4, 6)
    inputs = [rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in shapes]
    inputs[operand][...] *= np.float32(min(abs(value), 1e9) if np.isfinite(value) else 1)
    inputs[operand][1, 2, 3] = value
    text = convolution(
        x="f32[2,5,5,4]",
        w="f32[3,3,4,6]",
        y="f32[2,3,3,6]",
        window="size=3x3",
        labels="b01f_01io->b01f",
    )
    tiles_of(text, inputs)


def test_holes_make_parts_without_holes() -> None:
    axis = axis_of(WindowDimension(size=3, padding_low=1, padding_high=1, base_dilation=2), 4, 7)
    assert axis is not None
    assert [(part.first, part.count, part.taps) for part in axis.parts] == [
        (0, 4, ((1, 0),)),
        (1, 3, ((0, 0), (2, 1))),
    ]


def test_padding_between_lines_is_shared() -> None:
    axis = axis_of(WindowDimension(size=3, padding_low=1, padding_high=1), 8, 8)
    assert axis is not None
    assert (axis.extent, axis.pitch(), lines_of(axis).pitch) == (10, 9, 9)


def test_panels_do_without_the_tile_unit() -> None:
    text = convolution(
        x="f32[2,5,5,40]",
        w="f32[3,3,40,6]",
        y="f32[2,3,3,6]",
        window="size=3x3",
        labels="b01f_01io->b01f",
    )
    with without_tile_unit():
        tiles_of(text)
