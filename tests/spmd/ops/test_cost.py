"""Tests of the cost of one operation."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd.analysis.cost import op_cost
from spmd.ops.convolution import valid_positions
from spmd.ops.window import WindowDimension
from spmd.text.parser import parse_module

windows = st.builds(
    WindowDimension,
    size=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding_low=st.integers(-2, 3),
    padding_high=st.integers(-2, 3),
    base_dilation=st.integers(1, 3),
    window_dilation=st.integers(1, 3),
)


@given(windows, st.integers(0, 7))
def test_valid_positions_is_what_counting_gives(window: WindowDimension, base: int) -> None:
    output = window.output_size(base)
    counted = 0
    for o, k in itertools.product(range(output), range(window.size)):
        at = o * window.stride + k * window.window_dilation - window.padding_low
        counted += at % window.base_dilation == 0 and 0 <= at // window.base_dilation < base
    assert valid_positions(window, base, output) == counted


def root_cost(operation: str, parameters: str) -> tuple[float, float, float]:
    module = parse_module(f"HloModule t\n\nENTRY e {{\n{parameters}\n  ROOT r = {operation}\n}}\n")
    cost = op_cost(module.entry.root)
    return cost.flops, cost.transcendentals, cost.bytes_accessed


PARAMETERS = "a = f32[4,6] parameter(0)\nb = f32[6,8] parameter(1)\ni = s32[] parameter(2)"


@pytest.mark.parametrize(
    ("operation", "flops", "transcendentals", "bytes_accessed"),
    [
        ("f32[4,6] add(a, a)", 24, 0, 3 * 96),
        ("f32[4,6] tanh(a)", 0, 24, 2 * 96),
        (
            "f32[4,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            2 * 4 * 8 * 6,
            0,
            96 + 192 + 128,
        ),
        ("f32[6,4] transpose(a), dimensions={1,0}", 0, 0, 2 * 96),
        ("f32[1,6] dynamic-slice(a, i, i), dynamic_slice_sizes={1,6}", 0, 0, 2 * 24 + 8),
        ("f32[24] bitcast(a)", 0, 0, 0),
        ("(f32[4,6]) tuple(a)", 0, 0, 0),
    ],
)
def test_op_cost(
    operation: str, flops: float, transcendentals: float, bytes_accessed: float
) -> None:
    assert root_cost(operation, PARAMETERS) == (flops, transcendentals, bytes_accessed)
