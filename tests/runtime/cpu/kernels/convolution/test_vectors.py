"""Tests of convolutions in vector registers, of the host's length and shorter, against the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import runtime.cpu.kernels.convolution.ir.vector_multiply_ir as vector_multiply_ir
import runtime.cpu.kernels.convolution.panels as panel_convolution
import runtime.cpu.kernels.convolution.vectors as vector_convolution
import runtime.emit  # noqa: F401 - fills the lowerings
from benchmarks.native.tile_unit_off import without_tile_unit
from runtime.buffers.types import ArrayView
from runtime.codegen.llvm.jit import host_has
from runtime.cpu.kernels.convolution import tuning
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import vector_micro_kernel
from runtime.cpu.prediction.alone import thunk_alone
from runtime.cpu.sharing.convolutions import cut_panel_convolution
from runtime.lowering import Device
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.convolution import (
    LeftLayout,
    PanelConvolutionKernel,
    VectorMicroKernel,
)
from runtime.program.thunks import KernelThunk
from spmd.literal import NDArray
from spmd.text.parser import parse_module
from tests.runtime.cpu.kernels.convolution.convolutions import convolution, laid_out
from tests.runtime.programs.agreement import assert_agrees, kernels_of

pytestmark = pytest.mark.skipif(
    not host_has("avx2", "fma"), reason="the processor has no long vectors"
)


@pytest.fixture(params=["own", "short"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run with the host's vectors and with those of AVX2, without the tile unit."""
    if request.param == "short":
        monkeypatch.setattr(
            vector_multiply_ir,
            "host_has",
            lambda *names: "avx512f" not in names and host_has(*names),
        )
        for module in (panel_convolution, vector_convolution):
            monkeypatch.setattr(module, "vector_micro_kernel", vector_micro_kernel.__wrapped__)
    monkeypatch.setattr(tuning, "MOST_SHARE", 1e9)  # arrays here are small
    with without_tile_unit():
        yield


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[LeftLayout]:
    """Return a list that collects the layouts in which this test binds convolutions."""
    forms: list[LeftLayout] = []
    act = panel_convolution.vector_action

    def noted(plan: vector_convolution.VectorPlan, *arguments: object) -> object:
        forms.append(plan.left)
        return act(plan, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(panel_convolution, "vector_action", noted)
    return forms


def check(text: str, bound: list[LeftLayout], left: LeftLayout, *, buffered: bool = False) -> None:
    """Check sums of some hundred products against the evaluator's, which adds them up in another order."""
    kernels = kernels_of(assert_agrees(text, rtol=1e-3))
    plans = [k.vectors for k in kernels if isinstance(k, PanelConvolutionKernel)]
    assert [plan is not None and plan.buffered > 0 for plan in plans] == [buffered]
    assert set(bound) == {left}


WINDOWS = [
    ("size=3x2", "7,7"),
    ("size=3x2 pad=1_1x1_0", "9,8"),
    ("size=3x2 stride=2x3 pad=1_2x0_1", "5,3"),
    ("size=3x2 rhs_dilate=3x2", "3,6"),
    ("size=3x2 stride=2x2 pad=3_1x2_2 rhs_dilate=2x3", "5,5"),
    ("size=3x2 pad=-1_-2x-1_1", "4,7"),
    ("size=3x2 pad=4_4x3_3", "15,13"),
    ("size=3x2 pad=1_1x1_0 rhs_reversal=1x1", "9,8"),
    ("size=3x2 pad=1_1x1_0 rhs_reversal=0x1", "9,8"),
]


@pytest.mark.parametrize(("window", "out"), WINDOWS)
@pytest.mark.parametrize("features", [5, 12, 33])
def test_windows(window: str, out: str, features: int, bound: list[LeftLayout]) -> None:
    x, w, y = "f32[3,9,8,5]", f"f32[3,2,5,{features}]", f"f32[3,{out},{features}]"
    check(convolution(x, w, y, window, "b01f_01io->b01f"), bound, LeftLayout.ROWS)


@pytest.mark.parametrize(("window", "out"), WINDOWS)
@pytest.mark.parametrize(("rows", "features"), [(8, 12), (19, 3), (37, 51)])
def test_gradients_of_kernels(
    window: str, out: str, rows: int, features: int, bound: list[LeftLayout]
) -> None:
    """The rows are the images' features, which lie side by side."""
    x, w, y = f"f32[5,9,8,{rows}]", f"f32[5,3,2,{features}]", f"f32[{out},{rows},{features}]"
    check(convolution(x, w, y, window, "f01b_i01o->01bf"), bound, LeftLayout.DEPTH)


@pytest.mark.parametrize(
    "labels", ["b01f_01io->bf01", "b01f_01oi->bf01", "b01f_o01i->f01b", "b01f_01io->1bf0"]
)
@pytest.mark.parametrize("rows", [1, 5, 1 << 10])
def test_features_that_lie_apart(
    labels: str, rows: int, bound: list[LeftLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are gathered first, some rows at a time, if the features of the result lie apart.

    The features of w lie apart, too.
    """
    monkeypatch.setattr("runtime.cpu.kernels.convolution.tuning.BUFFERED", 64 * rows)
    sizes = [
        {"b": 4, "f": 100, "0": 6, "1": 7},
        {"i": 100, "o": 40, "0": 3, "1": 2},
        {"b": 4, "f": 40, "0": 6, "1": 6},
    ]
    x, w, y = laid_out(labels, sizes, "f32")
    text = convolution(x, w, y, "size=3x2 pad=1_1x0_0", labels)
    check(text, bound, LeftLayout.ROWS, buffered=True)


@pytest.mark.parametrize(
    ("x", "w", "y", "window"),
    [
        ("2,3,3,700", "3,3,700,14", "2,3,3,14", "size=3x3 pad=1_1x1_1"),
        ("1,3,4,601", "2,1,601,14", "1,2,4,14", "size=2x1"),
        ("1,3,700,2", "1,300,2,14", "1,3,401,14", "size=1x300"),
        ("1,3,5,7", "3,3,7,1100", "1,3,5,1100", "size=3x3 pad=1_1x1_1"),
    ],
)
def test_blocks(x: str, w: str, y: str, window: str, bound: list[LeftLayout]) -> None:
    """The convolution is cut into blocks of channels, of taps, or of features."""
    text = convolution(f"f32[{x}]", f"f32[{w}]", f"f32[{y}]", window, "b01f_01io->b01f")
    check(text, bound, LeftLayout.ROWS)


@pytest.mark.parametrize(
    ("x", "w", "y", "window", "labels", "more", "left"),
    [
        (
            "2,8,15",
            "3,5,51",
            "2,6,51",
            "size=3",
            "b0f_0io->b0f",
            ", feature_group_count=3",
            LeftLayout.ROWS,
        ),
        ("4,5", "5,19", "4,19", "", "bf_io->bf", "", LeftLayout.ROWS),
        (
            "2,4,5,6,3",
            "2,3,2,3,14",
            "2,3,3,5,14",
            "size=2x3x2",
            "b012f_012io->b012f",
            "",
            LeftLayout.ROWS,
        ),
        (
            "3,9,9,9,16",
            "3,7,7,7,20",
            "3,3,3,16,20",
            "size=7x7x7",
            "f012b_i012o->012bf",
            "",
            LeftLayout.DEPTH,
        ),
        ("1,1,9,1", "1,4,1,16", "1,1,6,16", "size=1x4", "b01f_01io->b01f", "", LeftLayout.ROWS),
    ],
)
def test_groups_and_ranks(
    x: str,
    w: str,
    y: str,
    window: str,
    labels: str,
    more: str,
    left: LeftLayout,
    bound: list[LeftLayout],
) -> None:
    text = convolution(f"f32[{x}]", f"f32[{w}]", f"f32[{y}]", window, labels, more)
    check(text, bound, left)


@pytest.mark.parametrize("labels", ["b01f_01io->b01f", "bf01_oi01->bf01"])
def test_types_are_converted(labels: str) -> None:
    sizes = ("3,6,5,4", "3,2,4,17") if labels[1] == "0" else ("3,4,6,5", "17,4,3,2")
    out = "3,6,4,17" if labels[1] == "0" else "3,17,6,4"
    x, w, y = f"bf16[{sizes[0]}]", f"bf16[{sizes[1]}]", f"bf16[{out}]"
    assert_agrees(convolution(x, w, y, "size=3x2 pad=1_1x0_0", labels), rtol=2e-2)


@pytest.mark.parametrize(
    ("x", "w", "y", "labels"),
    [
        ("f32[3,9,9,70]", "f32[3,3,70,96]", "f32[3,9,9,96]", "b01f_01io->b01f"),
        ("f32[70,9,9,19]", "f32[70,9,9,96]", "f32[3,3,19,96]", "f01b_i01o->01bf"),
    ],
)
def test_parts_of_the_features_are_the_same_bits(
    x: str, w: str, y: str, labels: str, bound: list[LeftLayout]
) -> None:
    """A thread may compute any part of the features; scratch holds what was there before."""
    size = "9x9" if labels[0] == "f" else "3x3"
    module = parse_module(convolution(x, w, y, f"size={size} pad=1_1x1_1", labels))
    thunk = thunk_alone(module.entry.root, Device(1, 1))
    assert isinstance(thunk, KernelThunk)
    kernel = thunk.kernel
    assert isinstance(kernel, PanelConvolutionKernel)
    random = np.random.default_rng(1)

    def array(place: ArrayView) -> NDArray:
        """Return random numbers in memory of their own, in the view that the kernel sees."""
        memory = random.standard_normal(place.slice.size // 4, np.float32)
        return np.ndarray(place.view.dims, np.float32, memory.data, 0, place.view.strides)

    places = (thunk.operands, thunk.results, thunk.scratch)
    whole, parts = [KernelArrays(*(tuple(map(array, each)) for each in places)) for _ in range(2)]
    parts = replace(parts, operands=whole.operands)
    CPU_KERNELS.bind(kernel, whole)()
    pieces = cut_panel_convolution(kernel, parts, 3)
    assert len(pieces) == 3
    for piece, arrays in pieces:
        CPU_KERNELS.bind(piece, arrays)()
    assert len(bound) == 4
    np.testing.assert_array_equal(whole.results[0], parts.results[0])


def test_heights_leave_no_row_and_waste_few() -> None:
    heights_of = (
        tuning.AVX512_HEIGHTS,
        tuning.AVX2_HEIGHTS,
        tuning.AVX512_NARROW_HEIGHTS,
        tuning.AVX2_NARROW_HEIGHTS,
    )
    for own in (VectorMicroKernel(16, heights) for heights in heights_of):
        heights = own.next_heights()
        for rows in range(1, len(heights)):
            left, multiplied = rows, 0
            while left > 0:
                multiplied += heights[left]
                left -= heights[left]
            tall, low = own.heights
            least = min(
                a * tall + b * low for a, b in np.ndindex(20, 20) if a * tall + b * low >= rows
            )
            assert multiplied == least


def test_a_short_sum_of_few_features_is_left_to_blas() -> None:
    """Vectors of sums would be partly empty, and stored under masks."""
    text = convolution(
        "f32[2,9,9,4]", "f32[1,1,4,7]", "f32[2,9,9,7]", "size=1x1", "b01f_01io->b01f"
    )
    (kernel,) = kernels_of(assert_agrees(text, rtol=1e-3))
    assert isinstance(kernel, PanelConvolutionKernel)
    assert kernel.vectors is None


@pytest.mark.parametrize(("side", "taken"), [(6, False), (64, True)])
def test_arrays_smaller_than_what_is_packed_are_left_to_blas(
    side: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small convolution's scratch would be most of the memory of its program."""
    monkeypatch.setattr(tuning, "MOST_SHARE", 1.0)
    x, w, y = f"f32[2,{side},{side},4]", "f32[3,3,4,16]", f"f32[2,{side},{side},16]"
    text = convolution(x, w, y, "size=3x3 pad=1_1x1_1", "b01f_01io->b01f")
    kernels = kernels_of(assert_agrees(text, rtol=1e-3))
    plans = [k.vectors for k in kernels if isinstance(k, PanelConvolutionKernel)]
    assert [plan is not None for plan in plans] == [taken]
