"""Tests of convolutions of inputs with holes, which are computed in phases without holes.

They are compared with the reference evaluator, and their products are counted.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from benchmarks.native.tile_unit_off import without_tile_unit
from runtime.cpu.kernels.convolution.phases import is_unphased
from runtime.cpu.prediction.phase_convolutions import phase_parts
from runtime.emit.convolution.phase_geometry import window_phases
from runtime.program.records.convolution import PhaseConvolutionKernel
from runtime.program.thunks import KernelThunk, traverse
from spmd.ops.window import Window, WindowDimension
from tests.runtime.cpu.kernels.convolution.convolutions import convolution, laid_out
from tests.runtime.programs.agreement import assert_agrees, kernels_of
from tests.runtime.programs.build import compiled


def phases_of(text: str, rtol: float = 2e-5) -> PhaseConvolutionKernel:
    with without_tile_unit():
        kernels = kernels_of(assert_agrees(text, rtol=rtol))
    (kernel,) = [k for k in kernels if isinstance(k, PhaseConvolutionKernel)]
    return kernel


def some_dimension(rng: random.Random, size: int) -> WindowDimension:
    """Return a window with at least one position over ``size`` elements.

    Padding may be negative or beyond the window.
    """
    while True:
        dim = WindowDimension(
            size=rng.randint(1, 5),
            stride=rng.randint(1, 3),
            padding_low=rng.randint(-2, 6),
            padding_high=rng.randint(-2, 6),
            base_dilation=rng.randint(1, 4),
            window_dilation=rng.randint(1, 4),
            reversal=rng.random() < 0.4,
        )
        if dim.output_size(size) > 0:
            return dim


def stated(window: Window) -> str:
    """Return the window as HLO text."""

    def by(name: str) -> str:
        return "x".join(str(int(getattr(dim, name))) for dim in window.dims)

    pads = "x".join(f"{dim.padding_low}_{dim.padding_high}" for dim in window.dims)
    return (
        f"size={by('size')} stride={by('stride')} pad={pads} lhs_dilate={by('base_dilation')} "
        f"rhs_dilate={by('window_dilation')} rhs_reversal={by('reversal')}"
    )


@pytest.mark.parametrize("few", [0, 60])
@pytest.mark.parametrize("seed", range(60))
def test_any_window(seed: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows have one to three dimensions, several layouts and types, and groups.

    Vectors hold channels wherever these lie side by side, or nowhere.
    """
    monkeypatch.setattr("runtime.emit.convolution.phases.MOST_THIN_BYTES", few)
    monkeypatch.setattr("runtime.emit.convolution.phases.VECTOR_BYTES", 8)
    for least in ("VECTORS", "WIDTH"):
        monkeypatch.setattr(f"runtime.emit.convolution.phases.LEAST_THIN_{least}", 0)
    rng = random.Random(seed)
    rank = 1 + seed % 3
    spatial = "012"[:rank]
    sizes = [rng.randint(1, 6) for _ in spatial]
    dims = [some_dimension(rng, size) for size in sizes]
    dims[0] = replace(dims[0], base_dilation=max(dims[0].base_dilation, 2), padding_low=3)
    window = Window(tuple(dims))
    outputs = [dim.output_size(size) for dim, size in zip(window.dims, sizes, strict=True)]
    groups, inputs, features = (
        rng.choice((1, 1, 2, 5)),
        rng.choice((1, 3, 18)),
        rng.choice((1, 2, 7)),
    )
    labels = rng.choice(
        (f"b{spatial}f_{spatial}io->b{spatial}f", f"bf{spatial}_oi{spatial}->bf{spatial}")
    )
    kind = rng.choice(("f32", "f64", "bf16", "f16"))
    x, w, y = laid_out(
        labels,
        [
            {"b": 3, "f": groups * inputs, **dict(zip(spatial, sizes, strict=True))},
            {
                "i": inputs,
                "o": groups * features,
                **{d: dim.size for d, dim in zip(spatial, dims, strict=True)},
            },
            {"b": 3, "f": groups * features, **dict(zip(spatial, outputs, strict=True))},
        ],
        kind,
    )
    more = f", feature_group_count={groups}"
    phases_of(
        convolution(x, w, y, stated(window), labels, more),
        2e-5 if kind[1:] in ("32", "64") else 2e-2,
    )


@pytest.mark.parametrize("seed", range(200))
def test_only_elements_are_multiplied(seed: int) -> None:
    """There are no more products than pairs (result, element of the window) that meet no hole."""
    rng = random.Random(seed)
    size = rng.randint(1, 8)
    dim = some_dimension(rng, size)
    outputs = dim.output_size(size)
    coordinates = [
        [o * dim.stride + k * dim.window_dilation - dim.padding_low for k in range(dim.size)]
        for o in range(outputs)
    ]
    met = [[at for at in own if at % dim.base_dilation == 0] for own in coordinates]
    inside = [[at for at in own if 0 <= at < size * dim.base_dilation] for own in met]
    phases = window_phases(Window((dim,)), (size,), (outputs,))
    (axis,) = phases.axes
    multiplications = sum(phase.outputs * phase.taps for phase in axis.phases)
    assert sum(map(len, inside)) <= multiplications <= sum(map(len, met))
    named = [range(outputs)[phase.results] for phase in axis.phases]
    named += [range(outputs)[first::step] for first, step in axis.zeros]
    assert sorted(o for own in named for o in own) == list(range(outputs))


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (7, 2), (5, 3), (1, 2), (4, 4)])
def test_a_gradient_multiplies_as_much_as_what_it_is_of(kernel: int, stride: int) -> None:
    """A gradient by an input has as many products as the convolution, whose 12 x 12 results meet the whole kernel.

    Its time is predicted from that number.
    """
    size = (12 - 1) * stride + kernel
    edge = kernel - 1
    window = f"size={kernel}x{kernel} pad={edge}_{edge}x{edge}_{edge} lhs_dilate={stride}x{stride} rhs_reversal=1x1"
    text = convolution(
        x="f32[2,12,12,6]",
        w=f"f32[{kernel},{kernel},4,6]",
        y=f"f32[2,{size},{size},4]",
        window=window,
        labels="b01f_01oi->b01f",
    )
    found = phases_of(text)
    multiplied = sum(
        math.prod(axis.outputs * axis.taps for axis in phase.axes) for phase in found.phases
    )
    # The phases' results at the edges meet padding.
    assert (12 * kernel) ** 2 <= multiplied < ((12 + kernel / stride) * kernel) ** 2 * 1.1
    (thunk,) = [
        thunk
        for thunk in traverse(compiled(text).program.thunks)
        if isinstance(thunk, KernelThunk) and thunk.kernel == found
    ]
    parts = phase_parts(found, thunk, lambda _: None)
    assert sum(each.multiplications for each in parts) == multiplied * 2 * 6 * 4


@pytest.mark.parametrize("features", [3, 20])
def test_the_tile_unit_does_it_as_a_whole(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scratch suffices for either way.

    Where the host has no tile unit, the undivided convolution of this test multiplies holes.
    """
    monkeypatch.setattr("runtime.cpu.kernels.convolution.phases.has_tile_unit", lambda: True)
    monkeypatch.setattr("runtime.cpu.kernels.convolution.tuning.MOST_MULTIPLIED", 1e9)
    monkeypatch.setattr("runtime.cpu.kernels.convolution.tuning.LEAST_TILE_BYTES", 1 << 20)
    text = convolution(
        x="f32[2,6,6,32]",
        w=f"f32[3,3,32,{features}]",
        y=f"f32[2,12,12,{features}]",
        window="size=3x3 pad=1_2x1_2 lhs_dilate=2x2",
        labels="b01f_01io->b01f",
    )
    found = phases_of(text, rtol=2e-4)
    assert is_unphased(found)


@pytest.mark.parametrize(
    ("kind", "channels", "features"),
    [
        *(("f32", 35, features) for features in range(1, 16)),
        *(("f32", 24, features) for features in (2, 5)),
        *(("f64", 24, features) for features in range(1, 8)),
    ],
)
@pytest.mark.parametrize(
    ("window", "out"),
    [
        ("size=4x3 pad=2_1x1_1", "9,11"),
        ("size=4x3 pad=2_1x1_1 stride=2x1 rhs_dilate=1x2 rhs_reversal=1x0", "5,9"),
        ("size=4x3 pad=3_3x2_2 lhs_dilate=2x2 rhs_reversal=1x1", "20,23"),
    ],
)
def test_few_features(window: str, out: str, kind: str, channels: int, features: int) -> None:
    """Vectors hold channels, with and without holes in the input."""
    found = phases_of(
        convolution(
            x=f"{kind}[2,9,11,{channels}]",
            w=f"{kind}[4,3,{channels},{features}]",
            y=f"{kind}[2,{out},{features}]",
            window=window,
            labels="b01f_01io->b01f",
        ),
        rtol=2e-4,
    )
    assert found.is_thin


def test_few_features_of_groups_anywhere() -> None:
    """Results may have any layout; the groups are computed one after the other."""
    found = phases_of(
        convolution(
            x="f32[3,9,40]",
            w="f32[5,20,10]",
            y="f32[3,10,9]",
            window="size=5 pad=2_2",
            labels="b0f_0io->bf0",
            more=", feature_group_count=2",
        ),
        rtol=2e-4,
    )
    assert found.is_thin
