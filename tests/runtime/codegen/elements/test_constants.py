"""Tests that the committed constants are what benchmarks/native/minimax.py derives."""

from __future__ import annotations

import math

import pytest

from benchmarks.native import minimax
from runtime.codegen.elements import constants


@pytest.mark.parametrize("split", minimax.SPLITS, ids=lambda split: split.name)
def test_sums(split: minimax.Split) -> None:
    assert getattr(constants, split.name) == tuple(split.parts)


def test_table_of_turns() -> None:
    assert tuple(minimax.turns_f64()) == constants.QUARTER_TURNS_F64


@pytest.mark.parametrize("name", ["EXP_F32", "SINE_F32", "SINH_F64"])
def test_polynomials(name: str) -> None:
    """Three polynomials are derived again; the others take longer."""
    (entry,) = (entry for entry in minimax.ENTRIES if entry.name == name)
    assert getattr(constants, name) == tuple(minimax.fit(entry)[0])


@pytest.mark.parametrize("entry", minimax.ENTRIES, ids=lambda entry: entry.name)
def test_errors_are_below_a_quarter_of_a_unit(entry: minimax.Entry) -> None:
    """The errors are below a quarter of a unit in the last place: of f32 for the short polynomials, which serve it.

    They are relative to exp(r) - 1 and the like, so that they are less where that is added to something. For bf16 the
    bound is a hundredth of a unit, and functions that are rounded correctly are tested on all numbers.
    """
    coefficients = [minimax.mpf(c) for c in getattr(constants, entry.name)]
    bits = 14 if "BF16" in entry.name else 24 if "SHORT" in entry.name else entry.bits
    assert minimax.largest(entry, coefficients) < math.ldexp(1, -bits - 1)
