"""Gradients of kernels on processors with the tile unit, as JAX writes them, against the reference evaluator in f64."""

from __future__ import annotations

import pytest

from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.program.records.convolution import GradientTiles
from tests.runtime.cpu.kernels.convolution.convolutions import (
    budget,  # noqa: F401
    convolution,
    laid_out,
    tiles_of,
)

if not has_tile_unit():  # hundreds of tests need not be made to be left out
    pytest.skip("no tile unit", allow_module_level=True)


@pytest.mark.parametrize(
    ("x", "w", "window", "out"),
    [
        ("8,9", "8,9", "pad=1_1x1_1", "3,3"),
        ("8,9", "6,8", "", "3,2"),
        ("8,9", "8,9", "pad=0_0x1_1", "1,3"),
        ("9,8", "4,3", "pad=0_1x1_0 rhs_dilate=2x3", "4,3"),
        ("9,8", "5,4", "pad=0_1x0_0 rhs_dilate=2x2", "2,2"),
        ("9,8", "5,4", "pad=0_0x0_-1 rhs_dilate=2x2", "1,1"),
        ("9,8", "9,8", "pad=2_2x2_2 stride=2x2", "3,3"),
        ("9,8", "5,4", "pad=2_4x2_1 rhs_dilate=2x2 stride=2x1", "4,5"),
        ("3,2", "6,5", "pad=5_4x4_4", "7,6"),
        ("8,8", "4,4", "pad=0_-1x0_-1 rhs_dilate=2x2", "1,1"),
        ("9,9", "5,5", "pad=2_2x2_2 rhs_dilate=2x2 stride=2x2", "3,3"),
    ],
)
@pytest.mark.parametrize("features", ["5,7", "40,70", "64,1"])
@pytest.mark.parametrize("images", [1, 5, 8])
def test_gradients(x: str, w: str, window: str, out: str, features: str, images: int) -> None:
    """Strides of what they are the gradient of are distances in the window; its dilations are strides."""
    inputs, outputs = features.split(",")
    size = "x".join(w.split(","))
    tiles_of(
        convolution(
            x=f"f32[{images},{x},{inputs}]",
            w=f"f32[{images},{w},{outputs}]",
            y=f"f32[{out},{inputs},{outputs}]",
            window=f"size={size} {window}".strip(),
            labels="f01b_i01o->01bf",
        )
    )


@pytest.mark.parametrize("labels", ["f01b_i01o->01bf", "f01b_io01->bf01", "f10b_01io->b0f1"])
@pytest.mark.parametrize("groups", [1, 3])
def test_layouts_and_groups(labels: str, groups: int, budget: int) -> None:  # noqa: F811
    """Batch groups are feature groups of what it is the gradient of."""
    sizes = [
        {"b": 36 * groups, "f": 5, "0": 7, "1": 6},
        {"i": 5, "o": 34 * groups, "0": 7, "1": 6},
        {"b": 36, "f": 34 * groups, "0": 3, "1": 3},
    ]
    x, w, y = laid_out(labels, sizes)
    more = f", batch_group_count={groups}" if groups > 1 else ""
    tiles = tiles_of(convolution(x, w, y, "size=7x6 pad=1_1x1_1", labels, more))
    if labels == "f01b_i01o->01bf":
        assert budget < 1_000_000 or isinstance(tiles, GradientTiles)


def test_one_image_whose_features_lie_apart(budget: int) -> None:  # noqa: F811
    """Its positions are a matrix for BLAS as they lie, but no vectors of features."""
    sizes = [
        {"b": 20, "f": 1, "0": 7, "1": 6},
        {"i": 1, "o": 34, "0": 7, "1": 6},
        {"b": 20, "f": 34, "0": 3, "1": 3},
    ]
    x, w, y = laid_out("f01b_io01->bf01", sizes)
    tiles = tiles_of(convolution(x, w, y, "size=7x6 pad=1_1x1_1", "f01b_io01->bf01"))
    assert not isinstance(tiles, GradientTiles)
