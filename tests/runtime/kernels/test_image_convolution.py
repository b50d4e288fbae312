"""Convolutions whose input is read where it lies, on processors with the tile unit, against the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.codegen.tile_unit import has_tile_unit, without_tile_unit
from runtime.kernels.convolution_axes import axis_of, lines_of
from runtime.kernels.image_convolution import ImageTiles
from runtime.kernels.panel_convolution import PanelConvolutionKernel
from spmd.evaluator.evaluator import evaluate
from spmd.literal import NDArray
from spmd.ops.window import WindowDimension
from tests.runtime.kernels.test_convolution import CONVOLUTION
from tests.runtime.programs.agreement import kernels_of
from tests.runtime.programs.build import compiled, module_of, random_inputs

pytestmark = pytest.mark.skipif(not has_tile_unit(), reason="no tile unit")


@pytest.fixture(params=[24_000, 60_000, 1_000_000], autouse=True)
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Scratch for a line or two, for an image or so, for everything; whatever is multiplied for nothing."""
    for name in ("LEAST_TILE_BYTES", "MOST_TILE_BYTES"):
        monkeypatch.setattr(f"runtime.emit.convolution.{name}", request.param)
    for name in ("MOST_MULTIPLIED", "MOST_MULTIPLIED_GRADIENT"):
        monkeypatch.setattr(f"runtime.emit.convolution.{name}", 1e9)
    return int(request.param)


def tiles_of(text: str, inputs: Sequence[NDArray] | None = None) -> ImageTiles | None:
    """Run ``text`` beside the evaluator in f64: errors stay below what some roundings of the sums' terms make."""
    executable = compiled(text)
    if inputs is None:
        inputs = random_inputs(executable.module)
    exactly = module_of(text.replace("f32", "f64"))
    wide = [array.astype(np.float64) for array in inputs]
    with np.errstate(all="ignore"):
        (got,), (want,) = executable.run(*inputs), evaluate(exactly, *wide)
        (size,) = evaluate(exactly, *map(np.abs, wide))
        want = np.where(np.abs(want) > np.finfo(np.float32).max, np.sign(want) * np.inf, want)
        error = np.abs(got.astype(np.float64) - want)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite].astype(np.float32))
    assert (error[finite] <= 2.0**-21 * size[finite] + 2.0**-148).all()
    (kernel,) = [k for k in kernels_of(executable) if isinstance(k, PanelConvolutionKernel)]
    return kernel.tiles


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
def test_windows(window: str, out: str, features: str, budget: int) -> None:
    inputs, outputs = features.split(",")
    size = window.split()[0].removeprefix("size=").replace("x", ",")
    tiles = tiles_of(
        CONVOLUTION.format(
            x=f"f32[3,9,8,{inputs}]",
            w=f"f32[{size},{inputs},{outputs}]",
            y=f"f32[3,{out},{outputs}]",
            window=window,
            labels="b01f_01io->b01f",
            more="",
        )
    )
    assert tiles is not None or budget < 1_000_000


@pytest.mark.parametrize(
    "labels", ["b01f_01io->b01f", "b01f_01oi->b01f", "b01f_oi01->bf01", "01bf_i0o1->f0b1"]
)
@pytest.mark.parametrize("inputs", [3, 64, 96, 40])
def test_layouts_and_depths(labels: str, inputs: int, budget: int) -> None:
    """The kernel's features apart, its depth apart, both; the output's features apart; products of parts of the channels."""
    sizes = [
        {"b": 5, "f": inputs, "0": 4, "1": 6},
        {"i": inputs, "o": 35, "0": 3, "1": 3},
        {"b": 5, "f": 35, "0": 4, "1": 6},
    ]
    operands, result = labels.split("->")
    x, w, y = (
        f"f32[{','.join(str(size[letter]) for letter in letters)}]"
        for letters, size in zip((*operands.split("_"), result), sizes, strict=True)
    )
    tiles = tiles_of(
        CONVOLUTION.format(x=x, w=w, y=y, window="size=3x3 pad=1_1x1_1", labels=labels, more="")
    )
    assert tiles is not None or budget < 1_000_000
    if tiles is not None and (inputs, budget) == (96, 60_000):
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
    tiles_of(CONVOLUTION.format(x=x, w=w, y=y, window=window, labels=labels, more=more))


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
    text = CONVOLUTION.format(
        x="f32[2,5,5,4]",
        w="f32[3,3,4,6]",
        y="f32[2,3,3,6]",
        window="size=3x3",
        labels="b01f_01io->b01f",
        more="",
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
    assert (axis.reach, axis.pitch(), lines_of(axis).pitch) == (10, 9, 9)


def test_panels_do_without_the_tile_unit() -> None:
    text = CONVOLUTION.format(
        x="f32[2,5,5,40]",
        w="f32[3,3,40,6]",
        y="f32[2,3,3,6]",
        window="size=3x3",
        labels="b01f_01io->b01f",
        more="",
    )
    with without_tile_unit():
        tiles_of(text)
