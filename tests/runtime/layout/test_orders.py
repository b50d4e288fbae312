"""Orders of dimensions: what must lie how before a view so that it lies as wanted behind it."""

from __future__ import annotations

import itertools

import pytest

from runtime.buffers.view_ops import VIEW_RULES
from runtime.layout.orders import before, memory_order, refilled, restricted, with_order
from runtime.program.strides import StridedView
from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from spmd.shape import ArrayShape, Layout, PrimitiveType

F32 = PrimitiveType.F32


def views() -> list[HloInstruction]:
    b = Builder(HloModule("m").new_computation("entry"))

    def array(*dims: int) -> HloInstruction:
        return b.parameter(b.computation.num_parameters, ArrayShape(F32, dims))

    return [
        b.transpose(array(2, 3, 4), (2, 0, 1)),
        b.reshape(array(2, 12), (2, 3, 4)),
        b.reshape(array(2, 3, 4), (6, 4)),
        b.reshape(array(2, 3, 4, 5), (2, 1, 12, 5)),
        b.reshape(array(4, 9), (6, 6)),
        b.broadcast(array(3, 4), (2, 0), (4, 2, 3)),
        b.slice(array(5, 4, 3), (1, 0, 0), (4, 4, 3), (2, 1, 1)),
        b.reverse(array(2, 3), (1,)),
    ]


@pytest.mark.parametrize("view", views(), ids=lambda view: f"{view.opcode}{list(view.dims)}")
def test_before(view: HloInstruction) -> None:
    """Every order behind a view comes from what ``before`` says, and from none where it says so."""
    source = view.operand(0)
    found = 0
    for wanted in itertools.permutations(range(len(view.dims))):
        order = before(view, wanted)
        lies = {
            candidate: VIEW_RULES[view.opcode](
                view, StridedView.dense_in_order(source.array_shape, candidate)
            )
            for candidate in itertools.permutations(range(len(source.dims)))
        }
        right = {
            candidate
            for candidate, seen in lies.items()
            if seen is not None and memory_order(seen) == restricted(wanted, memory_order(seen))
        }
        if order is None:
            assert not right
        else:
            found += 1
            moving = [d for d in order if source.dims[d] > 1]
            assert refilled(tuple(range(len(source.dims))), moving) in right
    assert found


def test_refilled_keeps_the_places_of_the_others() -> None:
    assert refilled((0, 1, 2, 3), (3, 1)) == (0, 3, 2, 1)
    assert refilled((2, 0, 1), ()) == (2, 0, 1)


def test_only_other_layouts_than_row_major_are_stated() -> None:
    shape = ArrayShape(F32, (2, 3))
    assert with_order(shape, (1, 0)).layout == Layout((0, 1))
    assert with_order(with_order(shape, (1, 0)), (0, 1)) == shape
    placed = ArrayShape(F32, (2, 3), Layout((0, 1), "S(5)"))
    assert with_order(placed, (0, 1)).layout == Layout((1, 0), "S(5)")
