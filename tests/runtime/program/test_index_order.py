"""Tests of the innermost dimension of loops: the one along which most of what is moved lies together."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.program.strides import StridedView, in_streaming_order
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True)
class Array:
    strides: tuple[int, ...]
    item: int = 4


def dense(*dims: int) -> Array:
    return Array(StridedView.dense(ArrayShape(PrimitiveType.F32, dims)).strides)


def test_an_array_that_lies_the_other_way_counts_as_much() -> None:
    """Result and one of two operands lie by row; three operands that lie by column are more."""
    by_column = Array((4, 4 * 64))
    assert in_streaming_order((64, 32), [dense(64, 32), by_column, dense(64, 32)], 2) == [0, 1]
    operands = [by_column, by_column, by_column]
    assert in_streaming_order((64, 32), [*operands, dense(64, 32)], 3) == [1, 0]


def test_what_is_repeated_counts_with_what_is_stored_of_it() -> None:
    """Weights of 8 experts, repeated for 160 places each, and the array of both that they are multiplied with."""
    weights, places = Array((4, 0)), Array((0, 1), 1)
    assert in_streaming_order((8, 160), [dense(8, 160), weights, places, weights], 4) == [0, 1]
    assert in_streaming_order((8, 160), [weights, weights, weights], 3) == [1, 0]
