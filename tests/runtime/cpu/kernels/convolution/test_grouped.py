"""Convolutions whose groups lie side by side, against the reference evaluator."""

from __future__ import annotations

import pytest

from runtime.program.records.convolution import GroupConvolutionKernel, PhaseConvolutionKernel
from tests.runtime.cpu.kernels.convolution.convolutions import convolution, kernel_size
from tests.runtime.programs.agreement import assert_agrees, kernels_of


def check(text: str, rtol: float = 2e-5) -> None:
    kernels = [
        kernel.undivided if isinstance(kernel, PhaseConvolutionKernel) else kernel
        for kernel in kernels_of(assert_agrees(text, rtol=rtol))
    ]
    assert any(isinstance(kernel, GroupConvolutionKernel) for kernel in kernels)


@pytest.mark.parametrize("groups", [5, 64, 70])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(
    ("window", "out"),
    [
        ("size=3x2", "7,7"),
        ("size=3x2 pad=1_1x1_0", "9,8"),
        ("size=3x2 stride=2x3 pad=1_2x0_1", "5,3"),
        ("size=3x2 pad=2_3x1_1 lhs_dilate=2x3", "20,23"),
        ("size=3x2 stride=2x2 pad=3_1x2_2 lhs_dilate=2x1 rhs_dilate=2x3", "9,5"),
        ("size=3x2 pad=-1_-2x-1_1", "4,7"),
        ("size=3x2 pad=1_1x1_0 rhs_reversal=1x0 stride=2x1", "5,8"),
    ],
)
def test_depthwise(window: str, out: str, kind: str, groups: int) -> None:
    check(
        convolution(
            x=f"{kind}[3,9,8,{groups}]",
            w=f"{kind}[3,2,1,{groups}]",
            y=f"{kind}[3,{out},{groups}]",
            window=window,
            labels="b01f_01io->b01f",
            more=f", feature_group_count={groups}",
        )
    )


@pytest.mark.parametrize(
    ("window", "out"),
    [("size=7x6 pad=1_1x1_1", "3,3"), ("size=4x3 pad=1_1x1_1 rhs_dilate=2x2", "3,4")],
)
def test_the_gradient_of_a_depthwise_kernel(window: str, out: str) -> None:
    """A group has an image's channel, and the images are what is summed."""
    size = kernel_size(window)
    check(
        convolution(
            x="f32[5,7,6,33]",
            w=f"f32[5,{size},33]",
            y=f"f32[{out},1,33]",
            window=window,
            labels="f01b_i01o->01bf",
            more=", batch_group_count=33",
        )
    )


@pytest.mark.parametrize(
    ("x", "w", "y"), [("bf16", "bf16", "bf16"), ("f16", "f16", "f32"), ("s8", "s8", "s32")]
)
def test_types_are_converted(x: str, w: str, y: str) -> None:
    check(
        convolution(
            x=f"{x}[2,9,20]",
            w=f"{w}[3,1,20]",
            y=f"{y}[2,9,20]",
            window="size=3 pad=1_1",
            labels="b0f_0io->b0f",
            more=", feature_group_count=20",
        ),
        rtol=2e-2 if y == "bf16" else 2e-5,
    )


def test_groups_apart_go_through_panels() -> None:
    """Their features would have to be laid out anew."""
    text = convolution(
        x="f32[2,6,8]",
        w="f32[6,1,3]",
        y="f32[2,6,6]",
        window="size=3",
        labels="bf0_oi0->bf0",
        more=", feature_group_count=6",
    )
    kernels = kernels_of(assert_agrees(text, rtol=2e-5))
    assert not any(isinstance(kernel, GroupConvolutionKernel) for kernel in kernels)
