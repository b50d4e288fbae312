"""Convolutions: groups, windows of every kind, gradients."""

from __future__ import annotations

from spmd.ops.window import WindowDimension
from tests.differential.op_programs.table import Draw, op, text


@op
def convolution(draw: Draw) -> str:
    n, i, o, s = draw.size(), draw.size(), draw.size(), draw.size() + 1
    return text(
        f"x = f32[{n},{s},{i}] parameter(0)",
        f"w = f32[2,{i},{o}] parameter(1)",
        f"ROOT r = f32[{n},{s - 1},{o}] convolution(x, w), window={{size=2}}, dim_labels=b0f_0io->b0f",
    )


@op
def convolution_feature_groups(draw: Draw) -> str:
    g = int(draw.rng.choice([2, 4, 6]))
    n, i, o = draw.size(), int(draw.rng.choice([1, 2])), int(draw.rng.choice([1, 2, 3]))
    return text(
        f"x = f32[{n},5,{g * i}] parameter(0)",
        f"w = f32[3,{i},{g * o}] parameter(1)",
        f"ROOT r = f32[{n},5,{g * o}] convolution(x, w), window={{size=3 pad=1_1}}, "
        f"dim_labels=b0f_0io->b0f, feature_group_count={g}",
    )


@op
def convolution_batch_groups(draw: Draw) -> str:
    g = int(draw.rng.choice([2, 4]))
    n, i, o = draw.size(), draw.size(), int(draw.rng.choice([1, 2, 3]))
    return text(
        f"x = f32[{g * n},4,{i}] parameter(0)",
        f"w = f32[2,{i},{g * o}] parameter(1)",
        f"ROOT r = f32[{n},3,{g * o}] convolution(x, w), window={{size=2}}, "
        f"dim_labels=b0f_0io->b0f, batch_group_count={g}",
    )


@op
def convolution_spatial(draw: Draw) -> str:
    """Long image, short kernel: stride, padding (negative too), dilations, reversal."""
    image, kernel = int(draw.rng.integers(4, 20)), int(draw.rng.integers(1, 4))
    stride, spread, apart = (int(draw.rng.choice([1, 1, 2, 3])) for _ in range(3))
    low, high = int(draw.rng.integers(-1, 4)), int(draw.rng.integers(0, 4))
    reversal = int(draw.rng.integers(2))
    window = WindowDimension(kernel, stride, low, high, spread, apart, bool(reversal))
    out = window.output_size(image)
    if out == 0:
        return convolution_spatial(draw)
    return text(
        f"x = f32[2,{image},2] parameter(0)",
        f"w = f32[{kernel},2,3] parameter(1)",
        f"ROOT r = f32[2,{out},3] convolution(x, w), window={{size={kernel} stride={stride} "
        f"pad={low}_{high} lhs_dilate={spread} rhs_dilate={apart} rhs_reversal={reversal}}}, "
        "dim_labels=b0f_0io->b0f",
    )


@op
def convolution_filter_gradient(draw: Draw) -> str:
    """Image against a long gradient: the spatial dimension is summed over."""
    gradient, kernel, stride = (
        int(draw.rng.integers(4, 12)),
        int(draw.rng.integers(1, 4)),
        int(draw.rng.integers(1, 3)),
    )
    low = int(draw.rng.integers(0, 2))
    image = (gradient - 1) * stride + kernel - low
    return text(
        f"x = f32[3,{image},4] parameter(0)",
        f"g = f32[{gradient},4,2] parameter(1)",
        f"ROOT r = f32[3,{kernel},2] convolution(x, g), window={{size={gradient} pad={low}_0 "
        f"rhs_dilate={stride}}}, dim_labels=b0f_0io->b0f",
    )


@op
def convolution_two_spatial(draw: Draw) -> str:
    a, b = int(draw.rng.integers(3, 10)), int(draw.rng.integers(3, 10))
    return text(
        f"x = f32[2,{a},{b},2] parameter(0)",
        "w = f32[3,3,2,2] parameter(1)",
        f"ROOT r = f32[2,{a},{b},2] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, "
        "dim_labels=b01f_01io->b01f",
    )
