"""Tests of piecewise functions: their intervals, and that vectors of arguments get the variants made for them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.native import minimax_intervals
from benchmarks.native.minimax import mpf
from runtime.codegen.elements import intervals
from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.elements.piecewise import Interval
from runtime.codegen.elements.table import SIZE
from runtime.codegen.ir.element_operations import host_instructions, operation_ir
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType
from tests.documents.native_math import native

P = PrimitiveType
TANH = ElementSignature(Opcode.TANH, (P.F32,), P.F32)


@pytest.mark.parametrize("pieces", minimax_intervals.PIECES, ids=lambda pieces: pieces.name)
def test_derived(pieces: minimax_intervals.Pieces) -> None:
    """One interval is derived again; all of them would take longer."""
    number, bounds = list(enumerate(pieces.bounds()))[6]
    assert (
        getattr(intervals, pieces.name)[number] == minimax_intervals.interval_of(pieces, *bounds)[0]
    )


def value(interval: Interval, t: mpf) -> mpf:
    return sum(
        mpf(c) * (t - mpf(interval.centre)) ** k for k, c in enumerate(interval.coefficients)
    )


@pytest.mark.parametrize("pieces", minimax_intervals.PIECES, ids=lambda pieces: pieces.name)
def test_errors_are_below_a_quarter_of_a_unit(pieces: minimax_intervals.Pieces) -> None:
    """The errors are below a quarter of a unit of f32, or a hundredth of a unit of bf16.

    Functions of bf16 that are rounded correctly are tested on all numbers.
    """
    bits = 14 if "BF16" in pieces.name else 24
    of_file = getattr(intervals, pieces.name)
    assert len(of_file) <= SIZE
    bounds = list(pieces.bounds())
    assert [float(low) for low, _ in bounds] == [interval.low for interval in of_file]
    assert all(high == low for (_, high), (low, _) in pairwise(bounds))
    for interval, (low, high) in zip(of_file, bounds, strict=True):
        for k in range(1, 60):
            t = low + (high - low) * k / 60
            exact = pieces.function(t)
            assert abs(value(interval, t) - exact) < math.ldexp(1, -bits - 1) * exact, t


def test_processors_without_permutations_compute_it_otherwise() -> None:
    assert "vpermi2var" not in "".join(operation_ir(TANH, instructions=Instructions(fused=True)))


@pytest.mark.skipif(not host_instructions().permutes, reason="the host has no such instruction")
def test_arguments_beyond_the_last_interval() -> None:
    ends = [9.4999, 9.5, 9.5001, 9.999, 10.0, 10.001, 16.0, 1e30, math.inf]
    x = np.array([*ends, *(-t for t in ends)], np.float32)
    assert native(Opcode.TANH, P.F32, [x]).tolist() == [1.0] * len(ends) + [-1.0] * len(ends)
    (nan,) = native(Opcode.TANH, P.F32, [np.array([np.nan], np.float32)])
    assert np.isnan(nan)
