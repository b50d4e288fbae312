"""Choice of the axes that split the factors of an op: the cheapest of a few candidate assignments.

The search stops at a candidate that moves nothing and is split along all axes that any operand or result names.

Cost = resharding the operands + local work + resharding the (possibly partial) result to the state that propagation
chose, all in bytes on the wire. Local work counts ``BYTES_PER_FLOP``: the ratio of link speed to arithmetic speed at
which a device would rather communicate than compute again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule
from partitioner.propagation.projection import (
    Assignment,
    empty_assignment,
    legalize,
    merge,
    project,
    tensor_dims,
    without_axes,
)
from partitioner.reshard.search import reshard_cost
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

BYTES_PER_FLOP = 0.5


@dataclass(frozen=True, slots=True)
class OpPlan:
    """States that an op requires of its operands, and the states of its results."""

    assignment: Assignment
    operands: tuple[ShardState, ...]
    results: tuple[ShardState, ...]


@dataclass(frozen=True, slots=True)
class OpProblem:
    """One op to plan. ``flops``: of the entire op on global shapes, at least one per result element."""

    axes: DeviceAxes
    rule: OpShardingRule
    operand_shapes: tuple[ArrayShape, ...]
    #: Cost of converting operand i to a state.
    operand_cost: Callable[[int, ShardState], float]
    operand_states: tuple[ShardState, ...]
    result_shapes: tuple[ArrayShape, ...]
    wanted: tuple[ShardState, ...]
    #: States that users of each result are certain to require.
    demanded: tuple[tuple[ShardState, ...], ...]
    forbidden: Axes
    flops: float


def best_plan(problem: OpProblem) -> OpPlan:
    """Return the cheapest candidate; the earlier one if two cost the same (the wanted result comes first)."""
    best: OpPlan | None = None
    best_cost = 0.0
    asked = _asked(problem)
    least = _local_cost(problem, asked.axes)
    for assignment, is_displaced in _candidates(problem, asked):
        plan = _plan(problem, assignment)
        cost = _cost(problem, plan, returns=is_displaced)
        if best is None or cost < best_cost:
            best, best_cost = plan, cost
        if cost <= least:
            break
    assert best is not None
    return best


@dataclass(frozen=True, slots=True)
class _Asked:
    """Factor axes wanted of each result and held by each operand. ``axes``: all of them, each once."""

    wanted: list[Assignment]
    current: list[Assignment]
    axes: Axes


def _asked(problem: OpProblem) -> _Asked:
    rule, axes = problem.rule, problem.axes
    wanted = [
        project(axes, rule, m, s.dims) for m, s in zip(rule.results, problem.wanted, strict=True)
    ]
    current = [
        project(axes, rule, m, s.dims)
        for m, s in zip(rule.operands, problem.operand_states, strict=True)
    ]
    named = (
        a for each in (empty_assignment(rule), *wanted, *current) for split in each for a in split
    )
    return _Asked(wanted, current, tuple(dict.fromkeys(named)))


def _candidates(problem: OpProblem, asked: _Asked) -> Iterator[tuple[Assignment, bool]]:
    """Yield the assignments that the results want, those of the operands, and their merges, each once.

    The flag is True for assignments with displaced axes, which no sharding requires at their new factor.
    """
    rule, axes = problem.rule, problem.axes

    def allowed(assignment: Assignment) -> Assignment:
        return without_axes(legalize(axes, rule, assignment), problem.forbidden, rule)

    results, operands = [allowed(a) for a in asked.wanted], [allowed(a) for a in asked.current]
    by_size = sorted(range(len(operands)), key=lambda i: (-problem.operand_shapes[i].byte_size, i))
    found: dict[Assignment, None] = {}
    for order in _orders(results, [operands[i] for i in by_size]):
        assignment = empty_assignment(rule)
        for more in order:
            assignment = merge(rule, assignment, more)
        assignment = legalize(axes, rule, assignment)
        if assignment not in found:
            found[assignment] = None
            yield assignment, False
    displaced = _displaced(problem, [asked.current[i] for i in by_size])
    for assignment in list(found) if displaced else ():
        moved = _with_displaced(problem, assignment, displaced)
        if moved not in found:
            found[moved] = None
            yield moved, True


def _orders(
    results: list[Assignment], operands: list[Assignment]
) -> Iterator[Sequence[Assignment]]:
    """Yield orders of assignments, whose axes are taken in turn; ``operands``: the largest first."""
    yield [*results, *operands]
    yield results
    for i, operand in enumerate(operands):
        yield [operand, *results, *operands[:i], *operands[i + 1 :]]
        yield [operand]
    yield []


def _displaced(problem: OpProblem, asked: Sequence[Assignment]) -> Axes:
    """Return the axes that split an operand dimension of which every device needs all."""
    found: dict[int, None] = {}
    for assignment in asked:
        for factor, split in zip(problem.rule.factors, assignment, strict=True):
            if factor.kind is FactorKind.NEED_REPLICATION:
                found.update(dict.fromkeys(a for a in split if a not in problem.forbidden))
    return tuple(found)


def _with_displaced(problem: OpProblem, assignment: Assignment, displaced: Axes) -> Assignment:
    """Return ``assignment`` with each displaced axis that it does not use moved to the factor with most elements left
    to split.

    x [i, s] split along s, to be sorted along s: an all-to-all to [i split, s] moves less than gathering s, and each
    device sorts its share of the rows.
    """
    axes, rule = problem.axes, problem.rule
    result = list(assignment)
    for axis in displaced:
        if any(axis in chosen for chosen in result):
            continue
        room = {
            index: factor.size // axes.count(result[index])
            for index, factor in enumerate(rule.factors)
            if factor.kind is FactorKind.PASS_THROUGH
            and not factor.blocked
            and factor.pinned is None
            and factor.size % axes.count((*result[index], axis)) == 0
        }
        if room:
            widest = max(room, key=lambda index: (room[index], -index))
            result[widest] = (*result[widest], axis)
    return legalize(axes, rule, tuple(result))


def _plan(problem: OpProblem, assignment: Assignment) -> OpPlan:
    rule = problem.rule
    partial, reduction = _partial(rule, assignment)
    return OpPlan(
        assignment,
        tuple(ShardState(tensor_dims(m, assignment)) for m in rule.operands),
        tuple(ShardState(tensor_dims(m, assignment), partial, reduction) for m in rule.results),
    )


def _partial(rule: OpShardingRule, assignment: Assignment) -> tuple[Axes, ReductionKind | None]:
    """Return the axes over which results stay partial, sorted so that equal states compare equal, and the reduction."""
    axes: list[int] = []
    kind: ReductionKind | None = None
    for factor, chosen in zip(rule.factors, assignment, strict=True):
        if factor.kind is FactorKind.REDUCTION and chosen:
            axes.extend(chosen)
            kind = factor.reduction
    return tuple(sorted(axes)), kind


def _cost(problem: OpProblem, plan: OpPlan, *, returns: bool) -> float:
    """Return the cost of a plan. ``returns``: the results are resharded to the wanted states even if no user requires a
    state.
    """
    axes = problem.axes
    total = sum(problem.operand_cost(i, need) for i, need in enumerate(plan.operands))
    for shape, have, want, demanded in zip(
        problem.result_shapes, plan.results, problem.wanted, problem.demanded, strict=True
    ):
        if have.partial or (returns and not demanded):
            total += reshard_cost(axes, shape, have, want)
            have = want
        total += sum(reshard_cost(axes, shape, have, state) for state in demanded)
    return total + _local_cost(problem, (a for chosen in plan.assignment for a in chosen))


def _local_cost(problem: OpProblem, axes: Iterable[int]) -> float:
    """Return the cost of the op on one device if it is split along ``axes``."""
    return BYTES_PER_FLOP * problem.flops / problem.axes.count(axes)
