"""Order of propagation: user priorities, op priorities, agreed axes before contested ones. No test needs HLO."""

from __future__ import annotations

import itertools

import pytest

from partitioner.devices.axes import DeviceAxes
from partitioner.propagation import driver
from partitioner.propagation.driver import Edge, ValueSharding, propagate
from partitioner.propagation.op_priority import Direction, OpPriority
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder, identity_rule
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType, array

AXES = DeviceAxes((2, 2))


def value(*dims: int, name: str = "value") -> ValueSharding:
    return ValueSharding.for_shape(array(PrimitiveType.F32, *dims), name)


def bound(
    axes: tuple[tuple[int, ...], ...], *, priorities: tuple[int, ...] = (), is_open: bool = False
) -> ValueSharding:
    made = value(*(8,) * len(axes))
    made.fix(axes, (is_open,) * len(axes), "annotation", priorities=priorities)
    return made


def same(
    a: ValueSharding, b: ValueSharding, name: str = "copy", allowed: Direction = Direction.BOTH
) -> Edge:
    return Edge.connect(identity_rule(a.shape), [a], [b], name, OpPriority.KEEPS_VALUE, allowed)


def add(a: ValueSharding, b: ValueSharding, result: ValueSharding) -> Edge:
    rule = RuleBuilder([a.shape.dims, b.shape.dims], [result.shape.dims])
    for dim, size in enumerate(a.shape.dims):
        rule.factor(size, operands={0: dim, 1: dim}, results={0: dim})
    return Edge.connect(rule.build(), [a, b], [result], "add", OpPriority.KEEPS_VALUE)


def dot_rule() -> OpShardingRule:
    rule = RuleBuilder([(8, 8), (8, 8)], [(8, 8)])
    rule.factor(8, {0: 0}, {0: 0})
    rule.factor(8, {1: 1}, {0: 1})
    rule.factor(8, {0: 1, 1: 0}, reduction=ReductionKind.SUM)
    return rule.build()


# ---- user priorities
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((), (1, 1), ((0,), ())), ((1, 1), (), ((), (0,))), ((2, 2), (1, 1), ((), (0,)))],
)
def test_the_smaller_user_priority_decides(
    first: tuple[int, ...], second: tuple[int, ...], expected: tuple[tuple[int, ...], ...]
) -> None:
    a, b = bound(((0,), ()), priorities=first), bound(((), (0,)), priorities=second)
    result = value(8, 8)
    propagate(AXES, [add(a, b, result)])
    assert result.state_dims == expected
    assert a.state_dims == ((0,), ()), "an annotation holds whatever its priority"
    assert b.state_dims == ((), (0,))


def test_a_dimension_that_waits_keeps_its_axes() -> None:
    """Axis 0 would reach dimension 1 first; it is kept for dimension 0, whose turn comes later."""
    waiting = bound(((0,), ()), priorities=(1, 0), is_open=True)
    other = bound(((), (0, 1)))
    propagate(AXES, [same(other, waiting)])
    assert waiting.state_dims == ((0,), ())


def test_a_dimension_that_waits_takes_nothing_until_its_turn() -> None:
    waiting = bound(((), ()), priorities=(1, 0), is_open=True)
    early, late = bound(((0,), ())), bound(((1,), ()), priorities=(1, 0))
    propagate(AXES, [same(early, waiting), same(late, waiting)])
    assert waiting.state_dims == ((0,), ())


def test_a_slot_without_edges_gets_its_annotation() -> None:
    alone = bound(((0,), ()), priorities=(3, 0))
    propagate(AXES, [], [alone])
    assert alone.state_dims == ((0,), ())


def test_causes_tell_the_priority() -> None:
    late = bound(((1,), ()), priorities=(2, 0))
    result = value(8, 8)
    propagate(AXES, [same(late, result)])
    assert result.causes[1].priority == 2
    assert result.causes[1].source is late


def test_excluded_axes_are_not_taken() -> None:
    """``replicated={"x"}``: copies along axis 0, whatever else comes."""
    whole = value(8, 8)
    whole.fix(((), ()), (True, True), "annotation", excluded=(0,))
    propagate(AXES, [same(bound(((0,), (1,))), whole)])
    assert whole.state_dims == ((), (1,))


# ---- op priorities
def test_reductions_come_after_what_passes_through() -> None:
    """The contracting dimension of lhs would give axis 0 to rhs's rows; the result asks for its columns first."""
    lhs, rhs, result = bound(((), (0,))), value(8, 8), bound(((), (0,)))
    propagate(AXES, [Edge.connect(dot_rule(), [lhs, rhs], [result], "dot", OpPriority.ORDINARY)])
    assert rhs.state_dims == ((), (0,))


def test_a_broadcast_passes_backwards_before_forwards() -> None:
    vector, matrix, result = bound(((0,),)), bound(((), (0,))), value(8, 8)
    rule = RuleBuilder([(8,)], [(8, 8)])
    rule.factor(8, {0: 0}, {0: 0})
    rule.factor(8, {}, {0: 1})
    edges = [
        Edge.connect(rule.build(), [vector], [result], "broadcast", OpPriority.BROADCASTS),
        Edge.connect(dot_rule(), [value(8, 8), matrix], [result], "dot", OpPriority.ORDINARY),
    ]
    propagate(AXES, edges)
    assert result.state_dims == ((), (0,))


def test_what_all_agree_on_goes_before_what_is_contested() -> None:
    """Axis 0 is contested at the first op, and reaches the result through the second one unchallenged."""
    a, b, result = bound(((0,), ())), bound(((), (0,))), value(8, 8)
    edges = [add(a, b, result), same(bound(((), (0,))), result)]
    propagate(AXES, edges)
    assert result.state_dims == ((), (0,))


# ---- barriers
@pytest.mark.parametrize(
    ("allowed", "forwards", "backwards"),
    [
        (Direction.NONE, (), ()),
        (Direction.FORWARD, (0,), ()),
        (Direction.BACKWARD, (), (0,)),
        (Direction.BOTH, (0,), (0,)),
    ],
)
def test_a_barrier_lets_axes_pass_one_way(
    allowed: Direction, forwards: tuple[int, ...], backwards: tuple[int, ...]
) -> None:
    source, after = bound(((0,),)), value(8)
    propagate(AXES, [same(source, after, allowed=allowed)])
    assert after.state_dims == (forwards,)
    before, target = value(8), bound(((0,),))
    propagate(AXES, [same(before, target, allowed=allowed)])
    assert before.state_dims == (backwards,)


# ---- cost
def test_the_work_is_linear_in_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Visits per edge stay the same when the chain gets ten times as long, and with a sharding in its middle."""

    def visits(length: int) -> int:
        count = 0
        real = driver.visit

        def counted(*arguments: object) -> list[ValueSharding]:
            nonlocal count
            count += 1
            return real(*arguments)  # type: ignore[arg-type]

        chain = [value(8, 8) for _ in range(length)]
        chain[length // 2].fix(((0,), ()), (False, True), "annotation")
        chain[-1].fix(((), (1,)), (True, False), "annotation", priorities=(0, 1))
        with monkeypatch.context() as patch:
            patch.setattr(driver, "visit", counted)
            propagate(AXES, [same(a, b) for a, b in itertools.pairwise(chain)])
        assert all(s.state_dims == ((0,), (1,)) for s in chain)
        return count

    assert visits(1000) <= 11 * visits(100)
