"""Reuse distances: what has been touched since, counted once however often it was."""

from __future__ import annotations

import math

import pytest

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.cpu.prediction.reuse_distance import Found, ReuseDistance, Span, span_of
from runtime.program.strides import StridedView
from spmd.shape import PrimitiveType


def whole(size: int, allocation: int = 0) -> Span:
    return Span(allocation, 0, size)


def touch(reuse: ReuseDistance, *spans: Span) -> list[list[Found]]:
    return reuse.touch(spans, [True] * len(spans))


def test_what_was_never_touched_is_infinitely_far() -> None:
    assert touch(ReuseDistance(1000), whole(10)) == [[Found(10, math.inf)]]


def test_the_distance_is_all_that_was_touched_since_and_the_array_itself() -> None:
    near = ReuseDistance(1000)
    touch(near, whole(10))
    assert touch(near, whole(10)) == [[Found(10, 10.0)]]
    touch(near, whole(30, 1))
    touch(near, whole(30, 1))
    assert touch(near, whole(10)) == [[Found(10, 40.0)]]


def test_parts_of_an_array_lie_at_distances_of_their_own() -> None:
    near = ReuseDistance(1000)
    touch(near, whole(10))
    touch(near, Span(0, 6, 10))
    touch(near, Span(1, 0, 100))
    assert touch(near, Span(0, 2, 12)) == [[Found(4, 104.0), Found(4, 110.0), Found(2, math.inf)]]


def test_arrays_of_one_kernel_do_not_stand_between_each_other() -> None:
    near = ReuseDistance(1000)
    touch(near, whole(10), whole(10, 1))
    assert touch(near, whole(10), whole(10, 1)) == [[Found(10, 20.0)], [Found(10, 10.0)]]


def test_a_result_in_the_place_of_an_operand_is_next_to_it() -> None:
    assert touch(ReuseDistance(1000), whole(10), whole(10))[1] == [Found(10, 0.0)]


def test_a_part_leaves_the_rest_as_far_as_it_was() -> None:
    near = ReuseDistance(1000)
    touch(near, whole(100))
    touch(near, whole(50, 1))
    near.touch([whole(100)], [False])
    assert touch(near, whole(100)) == [[Found(100, 150.0)]]


def test_what_lies_beyond_its_reach_is_forgotten() -> None:
    near = ReuseDistance(50)
    touch(near, whole(40))
    touch(near, whole(40, 1))
    touch(near, whole(40, 2))
    assert touch(near, whole(40)) == [[Found(40, math.inf)]]


@pytest.mark.parametrize(
    ("dims", "strides", "offset", "expected"),
    [
        ((4, 3), (12, 4), 0, (100, 148)),
        ((4, 3), (12, 4), 8, (108, 156)),
        ((3,), (-4,), 8, (100, 112)),
        ((5, 3), (0, 4), 0, (100, 112)),
        ((0, 3), (12, 4), 0, (100, 100)),
    ],
)
def test_spans_go_from_the_first_byte_to_the_last(
    dims: tuple[int, ...], strides: tuple[int, ...], offset: int, expected: tuple[int, int]
) -> None:
    view = StridedView(PrimitiveType.F32, dims, strides, offset)
    span = span_of(ArrayView(BufferSlice(7, 100, 200), view))
    assert (span.allocation, span.start, span.end) == (7, *expected)
