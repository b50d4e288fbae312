"""Convolutions by panels: layouts, windows, groups and panels of any size, against the reference evaluator."""

from __future__ import annotations

import pytest

from runtime.program.records.convolution import (
    GroupConvolutionKernel,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
)
from runtime.program.thunks import CopyThunk, traverse
from tests.runtime.cpu.kernels.convolution.convolutions import convolution, laid_out
from tests.runtime.programs.agreement import assert_agrees, kernels_of


def check(text: str, *, native: bool = True, rtol: float = 2e-5) -> None:
    kernels = kernels_of(assert_agrees(text, rtol=rtol))
    kinds = PanelConvolutionKernel, GroupConvolutionKernel, PhaseConvolutionKernel
    assert any(isinstance(kernel, kinds) for kernel in kernels) is native


FORWARD = "f32[3,9,8,5]", "f32[3,2,5,7]", "b01f_01io->b01f"


@pytest.mark.parametrize(
    ("window", "out"),
    [
        ("size=3x2", "7,7"),
        ("size=3x2 pad=1_1x1_0", "9,8"),
        ("size=3x2 stride=2x3 pad=1_2x0_1", "5,3"),
        ("size=3x2 pad=2_3x1_1 lhs_dilate=2x3", "20,23"),
        ("size=3x2 rhs_dilate=3x2", "3,6"),
        ("size=3x2 stride=2x2 pad=3_1x2_2 lhs_dilate=2x1 rhs_dilate=2x3", "9,5"),
        ("size=3x2 pad=-1_-2x-1_1", "4,7"),
        ("size=3x2 pad=1_1x1_0 rhs_reversal=1x1", "9,8"),
        ("size=3x2 pad=1_1x1_0 rhs_reversal=0x1", "9,8"),
    ],
)
@pytest.mark.parametrize("panel_bytes", [1, 700, 1 << 11])
def test_windows(window: str, out: str, panel_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding, holes and reversal; panels of a row, of some rows with a rest, of everything."""
    monkeypatch.setattr("runtime.cpu.kernels.convolution.tuning.LEAST_PANEL_BYTES", panel_bytes)
    monkeypatch.setattr("runtime.cpu.kernels.convolution.tuning.PANEL_PART", 1 << 20)
    x, w, labels = FORWARD
    check(convolution(x, w, f"f32[3,{out},7]", window, labels))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(
    "labels",
    [
        "b01f_01io->b01f",
        "bf01_oi01->bf01",
        "b01f_01io->bf01",
        "01bf_01io->01bf",
        "f01b_i01o->01bf",
        "b01f_01oi->b01f",
        "bf01_io01->b01f",
        "0bf1_0io1->0f1b",
        "01fb_0i1o->f0b1",
        "fb10_o1i0->1bf0",
    ],
)
@pytest.mark.parametrize("panel_bytes", [1, 1 << 10])
def test_layouts(labels: str, kind: str, panel_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.cpu.kernels.convolution.tuning.LEAST_PANEL_BYTES", panel_bytes)
    monkeypatch.setattr("runtime.cpu.kernels.convolution.tuning.PANEL_PART", 1 << 20)
    sizes = [
        {"b": 4, "f": 5, "0": 6, "1": 7},
        {"i": 5, "o": 3, "0": 3, "1": 2},
        {"b": 4, "f": 3, "0": 6, "1": 6},
    ]
    x, w, y = laid_out(labels, sizes, kind)
    check(convolution(x, w, y, "size=3x2 pad=1_1x0_0", labels))


@pytest.mark.parametrize("spatial", ["1,1", "1,3", "3,1"])
def test_the_gradient_of_a_kernel_reads_activations_as_they_lie(spatial: str) -> None:
    """Their features are the batch of that convolution, and may be its rows where the kernel has one element."""
    high = [{"1": (0, -1), "3": (1, 0)}[n] for n in spatial.split(",")]
    window = "size=4x4 pad=" + "x".join(f"{low}_{top}" for low, top in high) + " rhs_dilate=2x2"
    text = convolution(
        x="f32[6,8,8,5]",
        w="f32[6,4,4,7]",
        y=f"f32[{spatial},5,7]",
        window=window,
        labels="f01b_i01o->01bf",
    )
    executable = assert_agrees(text, rtol=2e-5)
    copied = any(isinstance(thunk, CopyThunk) for thunk in traverse(executable.program.thunks))
    assert not copied


@pytest.mark.parametrize(
    ("x", "w", "y", "window", "labels", "more"),
    [
        (
            "f32[2,8,6]",
            "f32[3,2,6]",
            "f32[2,6,6]",
            "size=3",
            "b0f_0io->b0f",
            ", feature_group_count=3",
        ),
        (
            "f32[2,6,8]",
            "f32[4,3,3]",
            "f32[2,4,6]",
            "size=3",
            "bf0_oi0->bf0",
            ", feature_group_count=2",
        ),
        (
            "f32[2,8,6]",
            "f32[3,1,6]",
            "f32[2,6,6]",
            "size=3",
            "b0f_0io->b0f",
            ", feature_group_count=6",
        ),
        (
            "f32[6,8,5]",
            "f32[3,5,4]",
            "f32[3,6,4]",
            "size=3",
            "b0f_0io->b0f",
            ", batch_group_count=2",
        ),
        (
            "f32[5,8,6]",
            "f32[5,3,4]",
            "f32[6,3,4]",
            "size=3",
            "f0b_i0o->0bf",
            ", batch_group_count=2",
        ),
        ("f32[4,5]", "f32[5,3]", "f32[4,3]", "", "bf_io->bf", ""),
        (
            "f32[2,4,5,6,3]",
            "f32[2,3,2,3,4]",
            "f32[2,3,3,5,4]",
            "size=2x3x2",
            "b012f_012io->b012f",
            "",
        ),
        ("f32[1,1,9,1]", "f32[1,4,1,1]", "f32[1,1,6,1]", "size=1x4", "b01f_01io->b01f", ""),
        ("f32[1,9,1,3]", "f32[9,1,3,4]", "f32[1,1,1,4]", "size=9x1", "b01f_01io->b01f", ""),
    ],
)
def test_groups_and_ranks(x: str, w: str, y: str, window: str, labels: str, more: str) -> None:
    check(convolution(x, w, y, window, labels, more))


@pytest.mark.parametrize(
    ("x", "w", "y"),
    [
        ("bf16", "bf16", "bf16"),
        ("f16", "f16", "f16"),
        ("bf16", "f32", "f32"),
        ("f32", "bf16", "f32"),
        ("s8", "s8", "s32"),
        ("u8", "s8", "s32"),
        ("f8e5m2", "f8e5m2", "f32"),
        ("bf16", "s8", "bf16"),
    ],
)
@pytest.mark.parametrize("labels", ["b01f_01io->b01f", "bf01_oi01->bf01"])
def test_types_are_converted(x: str, w: str, y: str, labels: str) -> None:
    """w lies backwards, which a converted copy does not."""
    sizes = (
        ("3,6,5,4", "3,2,4,7", "3,6,4,7") if labels[1] == "0" else ("3,4,6,5", "7,4,3,2", "3,7,6,4")
    )
    x_type, w_type, y_type = (f"{k}[{n}]" for k, n in zip((x, w, y), sizes, strict=True))
    backwards = "0,1" if labels[1] == "0" else "2,3"
    text = f"""HloModule convolution
    ENTRY main {{
      x = {x_type} parameter(0)
      v = {w_type} parameter(1)
      w = {w_type} reverse(v), dimensions={{{backwards}}}
      ROOT y = {y_type} convolution(x, w), window={{size=3x2 pad=1_1x0_0}}, dim_labels={labels}
    }}
    """
    check(text, rtol=2e-2 if y in ("bf16", "f16") else 2e-5)


def test_complex_convolutions_go_through_the_evaluator() -> None:
    window = "size=3"
    text = convolution(
        x="c64[2,8,3]",
        w="c64[3,3,4]",
        y="c64[2,6,4]",
        window=window,
        labels="b0f_0io->b0f",
    )
    check(text, native=False)
