"""Fits of seconds by parts: exact where they can be, never negative."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.machine.fit import nonnegative_fit
from spmd.machine.products import ProductClass, class_for
from spmd.shape import PrimitiveType

P = PrimitiveType
SIZES = ((64, 64, 64), (512, 32, 64), (32, 512, 512), (256, 256, 32), (100, 10, 1000), (33, 7, 9))


def product(lines: int = 1, multiplications: int = 1, **seconds: float) -> ProductClass:
    return ProductClass(P.F32, P.F32, P.F32, lines, 1, multiplications, 16, 4, 512, 128, **seconds)


def test_what_was_made_of_parts_is_found_again() -> None:
    made = product(
        call_seconds=1e-6, multiply_seconds=1e-11, rhs_seconds=3e-10, result_seconds=1e-10
    )
    parts = [made.parts(*sizes) for sizes in SIZES]
    found = nonnegative_fit(parts, [made.seconds(*sizes) for sizes in SIZES])
    assert found == pytest.approx(made.coefficients, rel=1e-6, abs=1e-16)


def test_no_coefficient_is_negative_and_none_would_do_better() -> None:
    rng = np.random.default_rng(0)
    parts = rng.uniform(0, 1, (12, 3)).tolist()
    seconds = [max(0.1, a - 0.4 * b + 0.2 * c) for a, b, c in parts]
    found = np.array(nonnegative_fit(parts, seconds))

    def error(c: np.ndarray) -> float:
        return float(np.square(np.array(parts) @ c / np.array(seconds) - 1).sum())

    assert found.min() >= 0
    for move in rng.normal(0, 0.05, (200, 3)):
        assert error(np.maximum(found + move, 0)) >= error(found) - 1e-12


def test_what_is_known_is_left_out_of_the_fit() -> None:
    parts, known = [(1.0, 2.0), (1.0, 5.0), (2.0, 1.0)], [10.0, 0.0, 3.0]
    seconds = [k + 3 * a + 4 * b for k, (a, b) in zip(known, parts, strict=True)]
    assert nonnegative_fit(parts, seconds, known) == pytest.approx([3.0, 4.0])


def test_what_stays_packed_and_how_often_the_other_operand_is() -> None:
    """512 lines of a depth of 128 stay: 1024 of half that depth. Which operand's, the cheaper way in all decides."""
    lhs, rhs = product(lhs_seconds=1.0), product(rhs_seconds=1.0)
    for sizes, packings in (
        ((600, 128, 512), (1, 1)),
        ((600, 128, 601), (2, 1)),
        ((601, 128, 600), (1, 2)),
        ((3, 128, 5000), (1, 1)),
        ((1000, 64, 1024), (1, 1)),
    ):
        m, k, n = sizes
        assert lhs.seconds(*sizes) == m * k * packings[0]
        assert rhs.seconds(*sizes) == k * n * packings[1]
    assert (
        lhs.seconds(600, 128, 601, (True, False)) == 600 * 128
    )  # a turned operand had better stay


def test_results_are_written_for_the_first_block_of_depth_and_added_to_for_the_next() -> None:
    written = product(result_seconds=1.0, added_seconds=10.0)
    assert [written.seconds(3, k, 5) for k in (128, 129, 300)] == [15, 165, 315]


def test_turned_operands_take_longer() -> None:
    one = product(
        lhs_seconds=1.0, rhs_seconds=1.0, lhs_transposed_seconds=2.0, rhs_transposed_seconds=3.0
    )
    times = [one.seconds(2, 3, 5, (lhs, rhs)) for lhs in (False, True) for rhs in (False, True)]
    assert times == [6 + 15, 6 + 60, 18 + 15, 18 + 60]


def test_sizes_count_as_whole_blocks() -> None:
    one = product(multiply_seconds=1.0)
    assert one.seconds(1, 1, 1) == one.seconds(16, 4, 16) == 16 * 16 * 4
    assert one.seconds(17, 4, 16) == 2 * 16 * 16 * 4


def test_the_first_class_that_holds_is_taken() -> None:
    large, small = product(lines=32, multiplications=1 << 15), product()
    types = (P.F32, P.F32, P.F32)
    assert class_for((large, small), types, (32, 32, 32)) is large
    assert class_for((large, small), types, (16, 512, 512)) is small
    assert class_for((large, small), (P.BF16, P.F32, P.F32), (32, 32, 32)) is None
