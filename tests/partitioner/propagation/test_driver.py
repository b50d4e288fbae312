"""Propagation over value shardings and edges, without any HLO."""

from __future__ import annotations

import itertools

from partitioner.devices.axes import DeviceAxes
from partitioner.propagation.driver import Edge, ValueSharding, propagate
from partitioner.propagation.op_priority import OpPriority
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder, identity_rule
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType, array

AXES = DeviceAxes((2, 2))
F32 = PrimitiveType.F32


def value(*dims: int) -> ValueSharding:
    return ValueSharding.for_shape(array(F32, *dims), "value")


def bound(
    dims: tuple[int, ...], axes: tuple[tuple[int, ...], ...], *, is_open: bool = False
) -> ValueSharding:
    made = value(*dims)
    made.fix(axes, (is_open,) * len(dims), "annotation")
    return made


def dot_rule(m: int, n: int, k: int) -> OpShardingRule:
    rule = RuleBuilder([(m, k), (k, n)], [(m, n)])
    rule.factor(m, {0: 0}, {0: 0})
    rule.factor(n, {1: 1}, {0: 1})
    rule.factor(k, {0: 1, 1: 0}, reduction=ReductionKind.SUM)
    return rule.build()


def test_free_dimensions_of_a_dot_reach_the_result() -> None:
    lhs, rhs, result = bound((8, 8), ((0,), ())), bound((8, 8), ((), (1,))), value(8, 8)
    propagate(
        AXES, [Edge.connect(dot_rule(8, 8, 8), [lhs, rhs], [result], "dot", OpPriority.ORDINARY)]
    )
    assert result.state_dims == ((0,), (1,))


def test_a_result_reaches_back_to_open_operands() -> None:
    lhs, rhs, result = value(8, 8), value(8, 8), bound((8, 8), ((0,), (1,)))
    propagate(
        AXES, [Edge.connect(dot_rule(8, 8, 8), [lhs, rhs], [result], "dot", OpPriority.ORDINARY)]
    )
    assert lhs.state_dims == ((0,), ())
    assert rhs.state_dims == ((), (1,))


def test_contracting_dimensions_agree() -> None:
    lhs, rhs, result = bound((8, 8), ((), (0,))), value(8, 8), value(8, 8)
    propagate(
        AXES, [Edge.connect(dot_rule(8, 8, 8), [lhs, rhs], [result], "dot", OpPriority.ORDINARY)]
    )
    assert rhs.state_dims == ((0,), ())
    assert result.state_dims == ((), ())


def test_a_closed_dimension_takes_nothing() -> None:
    source, closed = bound((8,), ((0,),)), bound((8,), ((),))
    propagate(
        AXES,
        [
            Edge.connect(
                identity_rule(source.shape), [source], [closed], "copy", OpPriority.KEEPS_VALUE
            )
        ],
    )
    assert closed.state_dims == ((),)


def test_an_open_dimension_is_only_extended() -> None:
    source, partly = bound((8,), ((0, 1),)), bound((8,), ((0,),), is_open=True)
    other = bound((8,), ((1,),), is_open=True)
    propagate(
        AXES,
        [
            Edge.connect(
                identity_rule(source.shape), [source], [partly], "copy", OpPriority.KEEPS_VALUE
            )
        ],
    )
    assert partly.state_dims == ((0, 1),)
    propagate(
        AXES,
        [
            Edge.connect(
                identity_rule(source.shape), [source], [other], "copy", OpPriority.KEEPS_VALUE
            )
        ],
    )
    assert other.state_dims == ((1,),)


def test_forbidden_axes_are_not_given() -> None:
    source, inside = bound((8,), ((0, 1),)), value(8)
    inside.forbidden = (1,)
    propagate(
        AXES,
        [
            Edge.connect(
                identity_rule(source.shape), [source], [inside], "copy", OpPriority.KEEPS_VALUE
            )
        ],
    )
    assert inside.state_dims == ((0,),)


def test_a_dimension_smaller_than_the_shards_is_left_alone() -> None:
    source = bound((1,), ((0,),))
    target = value(1)
    propagate(
        AXES,
        [
            Edge.connect(
                identity_rule(source.shape), [source], [target], "copy", OpPriority.KEEPS_VALUE
            )
        ],
    )
    assert target.state_dims == ((),)


def test_a_contested_axis_goes_to_the_larger_tensor() -> None:
    lhs, rhs, result = bound((64, 8), ((0,), ())), bound((8, 8), ((), (0,))), value(64, 8)
    propagate(
        AXES, [Edge.connect(dot_rule(64, 8, 8), [lhs, rhs], [result], "dot", OpPriority.ORDINARY)]
    )
    assert result.state_dims == ((0,), ())


def test_elementwise_edges_come_first() -> None:
    """An activation's own sharding wins over one that crosses a contraction, wherever the ops stand."""
    lhs, rhs, result = bound((8, 8), ((), ())), bound((8, 8), ((), (0,))), value(8, 8)
    constraint = bound((8, 8), ((0,), ()))
    edges = [
        Edge.connect(dot_rule(8, 8, 8), [lhs, rhs], [result], "dot", OpPriority.ORDINARY),
        Edge.connect(
            identity_rule(result.shape),
            [result],
            [constraint],
            "constraint",
            OpPriority.KEEPS_VALUE,
        ),
    ]
    propagate(AXES, edges)
    assert result.state_dims == ((0,), ())


def test_a_chain_is_followed_to_its_end_in_both_directions() -> None:
    chain = [value(8) for _ in range(50)]
    chain[25].fix(((0,),), (False,), "annotation")
    edges = [
        Edge.connect(identity_rule(a.shape), [a], [b], "copy", OpPriority.KEEPS_VALUE)
        for a, b in itertools.pairwise(chain)
    ]
    propagate(AXES, edges)
    assert all(value.state_dims == ((0,),) for value in chain)
