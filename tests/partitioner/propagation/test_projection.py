"""Axes per dimension <-> axes per factor."""

from __future__ import annotations

from partitioner.devices.axes import DeviceAxes
from partitioner.propagation.op_sharding_rule import FactorKind, RuleBuilder
from partitioner.propagation.projection import (
    empty_assignment,
    legalize,
    merge,
    project,
    tensor_dims,
    without_axes,
)
from spmd.device import ReductionKind

AXES = DeviceAxes((2, 4))


def merge_rule() -> RuleBuilder:
    """reshape [2, 4, 3] -> [8, 3]: factors 2, 4 and 3."""
    rule = RuleBuilder([(2, 4, 3)], [(8, 3)])
    rule.factor(2, {0: 0}, {0: 0})
    rule.factor(4, {0: 1}, {0: 0})
    rule.factor(3, {0: 2}, {0: 1})
    return rule


def test_a_merged_dimension_gives_its_axes_to_the_major_factor_first() -> None:
    rule = merge_rule().build()
    assert project(AXES, rule, rule.results[0], ((0, 1), ())) == ((0,), (1,), ())


def test_axes_that_do_not_fit_the_major_factor_are_dropped() -> None:
    rule = merge_rule().build()
    # 8 split 4 ways by axis 1: factor 2 cannot take 4 shards.
    assert project(AXES, rule, rule.results[0], ((1,), ())) == ((), (), ())


def test_a_minor_factor_may_be_split_only_when_the_major_one_is_complete() -> None:
    rule = merge_rule().build()
    assert legalize(AXES, rule, ((), (1,), ())) == ((), (), ())
    assert legalize(AXES, rule, ((0,), (1,), ())) == ((0,), (1,), ())


def test_factors_of_a_merged_dimension_must_divide_evenly() -> None:
    rule = RuleBuilder([(3, 2)], [(6,)])
    rule.factor(3, {0: 0}, {0: 0})
    rule.factor(2, {0: 1}, {0: 0})
    built = rule.build()
    assert legalize(AXES, built, ((0,), ())) == ((), ())


def test_need_replication_is_never_split() -> None:
    rule = RuleBuilder([(8,)], [(8,)])
    rule.factor(8, {0: 0}, {0: 0}, kind=FactorKind.NEED_REPLICATION)
    assert legalize(AXES, rule.build(), ((0,),)) == ((),)


def test_a_dimension_nobody_mentions_stays_whole() -> None:
    rule = RuleBuilder([(8, 5)], [(8,)])
    rule.factor(8, {0: 0}, {0: 0})
    assert [f.kind for f in rule.build().factors] == [
        FactorKind.PASS_THROUGH,
        FactorKind.NEED_REPLICATION,
    ]


def test_merge_extends_a_prefix_and_takes_each_axis_once() -> None:
    rule = RuleBuilder([(8, 8), (8, 8)], [(8, 8)])
    rule.factor(8, {0: 0}, {0: 0})
    rule.factor(8, {1: 1}, {0: 1})
    rule.factor(8, {0: 1, 1: 0}, reduction=ReductionKind.SUM)
    built = rule.build()
    base = merge(built, empty_assignment(built), ((0,), (), ()))
    assert merge(built, base, ((0, 1), (), ())) == ((0, 1), (), ())
    assert merge(built, base, ((1,), (), ())) == base  # not an extension
    assert merge(built, base, ((), (0,), (1,))) == ((0,), (), (1,))  # axis 0 is taken


def test_a_pinned_factor_keeps_its_axes() -> None:
    rule = RuleBuilder([(8,)], [(4,)])
    rule.factor(2, {0: 0}, pinned=(0,))
    rule.factor(4, {0: 0}, {0: 0})
    built = rule.build()
    assert empty_assignment(built) == ((0,), ())
    assert without_axes(((0,), (1,)), (0,), built) == ((0,), (1,))
    assert tensor_dims(built.operands[0], ((0,), (1,))) == ((0, 1),)


def test_forbidden_axes_cut_a_factor_where_they_stand() -> None:
    rule = RuleBuilder([(8,)], [(8,)])
    rule.factor(8, {0: 0}, {0: 0})
    assert without_axes(((1, 0),), (0,), rule.build()) == ((1,),)
