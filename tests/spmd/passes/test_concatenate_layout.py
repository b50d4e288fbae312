"""Which orders of dimensions a product reads without a copy."""

from __future__ import annotations

import pytest

from runtime.emit.dot import layouts
from runtime.strides import StridedView
from spmd.builder import Builder
from spmd.hlo import HloModule
from spmd.ops.attrs import DotAttrs
from spmd.passes.concatenate_layout import better_order, use_of
from spmd.shape import ArrayShape, PrimitiveType

F32 = PrimitiveType.F32
ORDERS = [(0, 1, 2, 3), (1, 2, 0, 3), (0, 3, 1, 2), (3, 0, 1, 2), (2, 1, 0, 3), (1, 0, 3, 2), (0, 1, 3, 2)]  # fmt: skip
PRODUCTS = [
    DotAttrs((0, 3), (0, 1)),
    DotAttrs((3, 0), (1, 0)),
    DotAttrs((3,), (2,), (0,), (0,)),
    DotAttrs((1, 2), (0, 1), (3,), (2,)),
]


@pytest.mark.parametrize("attrs", PRODUCTS, ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_as_the_runtime_copies(attrs: DotAttrs, order: tuple[int, ...]) -> None:
    """The pass foresees what the runtime does with an operand that lies in this order."""
    module = HloModule("m")
    b = Builder(module.new_computation("entry"))
    sizes = (2, 3, 4, 5)
    dims = [0, 0, 0]
    for i, d in zip((*attrs.rhs_batch, *attrs.rhs_contracting), (*attrs.lhs_batch, *attrs.lhs_contracting), strict=True):  # fmt: skip
        dims[i] = sizes[d]
    dims = [n or 7 for n in dims]
    x, w = b.parameter(0, ArrayShape(F32, sizes)), b.parameter(1, ArrayShape(F32, tuple(dims)))
    dot = b.dot(x, w, attrs)
    use = use_of(x, dot, 0)
    assert use is not None
    views = (StridedView.dense_in_order(x.array_shape, order), StridedView.dense(w.array_shape))
    assert use.reads(order) == (0 not in layouts(dot, views))


def test_no_order_suits_two_products_that_disagree() -> None:
    module = HloModule("m")
    b = Builder(module.new_computation("entry"))
    part = b.parameter(0, ArrayShape(F32, (2, 3, 4, 5)))
    whole = b.concatenate([part, part], 0)
    one = b.dot(whole, b.parameter(1, ArrayShape(F32, (4, 5))), DotAttrs((0, 3), (0, 1)))
    assert better_order(whole) == (1, 2, 0, 3)
    other = b.dot(whole, b.parameter(2, ArrayShape(F32, (4, 4))), DotAttrs((0, 2), (0, 1)))
    b.computation.root = b.tuple([one, other])
    assert better_order(whole) is None
