"""Sharding propagation: one fixpoint over factors, independent of opcodes.

The program is a graph. Its nodes are the shardings of the array values, and its edges are the ops, each with its
sharding rule. A sharding only grows: axes are appended to the minor end of open dimensions. For each factor an edge
passes the longest list of axes among its tensors to the tensors whose list is a proper prefix of it.

Example: dot [i,k]x[k,j]->[i,j] with lhs ((0,),()) and rhs ((),(1,)). Factor i has (0,), j has (1,); the result becomes
((0,),(1,)).

Order, outermost loop first (as in Shardy):

    user priorities   dimensions with priority p1 take part once those without a priority (p0) are at their fixpoint
    op priorities     levels of op_priority.py: ops that keep a value, other pass-through factors, then reductions
    conflicts         factors on which all tensors of an op agree, then contested axes, which go to the larger tensor

Within a level a sweep visits edges forwards, then backwards, and only those with a changed sharding. Each sharding can
grow at most (number of axes) times, so the work is linear in the number of edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.propagation.op_priority import (
    LAST_LEVEL,
    LEVELS,
    Direction,
    OpPriority,
    directions,
)
from partitioner.propagation.op_sharding_rule import OpShardingRule, TensorMapping
from partitioner.propagation.projection import Assignment, project
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape


@dataclass(frozen=True, slots=True)
class AxisCause:
    """Reason that a value has an axis: op ``by`` passed it on from ``source``. If ``source`` is None, the annotation
    ``by`` states it.

    ``priority``: the user priority at which it was added.
    """

    by: str
    source: ValueSharding | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class DeferredDim:
    """Annotated dimension that is deferred until its user priority."""

    priority: int
    dim: int
    axes: Axes
    is_open: bool


@dataclass(eq=False, slots=True)
class ValueSharding:
    """Sharding of one array value during propagation. Compared by identity.

    ``open[d]``: dimension d may take more axes. ``forbidden``: axes that are manual at the value. ``excluded``: axes
    that an annotation keeps replicated. ``deferred``: dimensions that are unsplit and closed until their user priority
    comes; their axes are reserved.
    ``because``: source of the first axes; ``causes``: source of each axis, for explanations.
    """

    shape: ArrayShape
    dims: list[Axes]
    open: list[bool]
    name: str = ""
    forbidden: Axes = ()
    excluded: Axes = ()
    deferred: tuple[DeferredDim, ...] = ()
    because: str = ""
    causes: dict[int, AxisCause] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    #: Bytes of the global value: the larger tensor wins a contested axis.
    weight: int = field(init=False)

    def __post_init__(self) -> None:
        self.weight = self.shape.byte_size

    @staticmethod
    def for_shape(shape: ArrayShape, name: str) -> ValueSharding:
        return ValueSharding(shape, [()] * shape.rank, [True] * shape.rank, name)

    def fix(
        self,
        dims: DimAxes,
        open_dims: Sequence[bool],
        because: str,
        *,
        priorities: Sequence[int] = (),
        excluded: Axes = (),
    ) -> None:
        """Bind the value to an annotation. ``priorities``: one per dimension; empty if all are 0."""
        ranks = priorities or (0,) * len(dims)
        self.deferred = tuple(
            DeferredDim(rank, d, dim_axes, is_open)
            for d, (rank, dim_axes, is_open) in enumerate(zip(ranks, dims, open_dims, strict=True))
            if rank > 0
        )
        self.dims = [
            () if rank > 0 else dim_axes for rank, dim_axes in zip(ranks, dims, strict=True)
        ]
        self.open = [rank == 0 and way for rank, way in zip(ranks, open_dims, strict=True)]
        self.excluded = excluded
        self.because = because
        self.causes = {axis: AxisCause(because) for dim_axes in self.dims for axis in dim_axes}

    def release(self, priority: int) -> None:
        """Activate the deferred dimensions of ``priority``."""
        due = [w for w in self.deferred if w.priority == priority]
        self.deferred = tuple(w for w in self.deferred if w.priority != priority)
        for w in due:
            self.dims[w.dim] = w.axes
            self.open[w.dim] = w.is_open
            self.causes.update({a: AxisCause(self.because, None, priority) for a in w.axes})
        for edge in self.edges if due else ():
            edge.visited = -1

    @property
    def state_dims(self) -> DimAxes:
        return tuple(self.dims)

    def unavailable(self) -> set[int]:
        """Return the axes that no dimension may take any more."""
        taken = {a for dim_axes in self.dims for a in dim_axes} | {
            a for w in self.deferred for a in w.axes
        }
        return taken.union(self.forbidden, self.excluded)


#: Factors of an edge that pass axes at some level, and the direction of each.
Ways = tuple[tuple[int, Direction], ...]


@dataclass(eq=False, slots=True)
class Edge:
    """One op between value shardings. ``tensors``: operands, then results, with their mappings.

    ``ways``: the factors and directions of each level. ``visited``: the last round that saw the current state of its
    shardings, -1 after a change. ``contested``: that round left axes to a round that resolves conflicts.
    """

    rule: OpShardingRule
    tensors: tuple[tuple[TensorMapping, ValueSharding], ...]
    name: str
    ways: tuple[Ways, ...]
    position: int = 0
    visited: int = -1
    contested: bool = False

    @staticmethod
    def connect(
        rule: OpShardingRule,
        operands: Sequence[ValueSharding],
        results: Sequence[ValueSharding],
        name: str,
        priority: OpPriority,
        allowed: Direction = Direction.BOTH,
    ) -> Edge:
        """Connect value shardings by a rule. ``allowed``: the direction that a propagation barrier permits."""
        tensors = (
            *zip(rule.operands, operands, strict=True),
            *zip(rule.results, results, strict=True),
        )
        edge = Edge(rule, tensors, name, _ways(rule, priority, allowed))
        for sharding in dict.fromkeys(sharding for _, sharding in tensors):
            sharding.edges.append(edge)
        return edge

    def may_send(self, tensor: int, way: Direction) -> bool:
        return way is Direction.BOTH or (way is Direction.FORWARD) == self._is_operand(tensor)

    def may_receive(self, tensor: int, way: Direction) -> bool:
        return way is Direction.BOTH or (way is Direction.BACKWARD) == self._is_operand(tensor)

    def _is_operand(self, tensor: int) -> bool:
        return tensor < len(self.rule.operands)

    def is_due(self, current: Round) -> bool:
        """Return whether a visit in this round may pass on more than the last one did."""
        if not self.ways[current.level]:
            return False
        if self.visited < 0 or (current.resolves_conflicts and self.contested):
            return True
        before = self.visited // 2
        return before < current.level and self.ways[before] != self.ways[current.level]


def _ways(rule: OpShardingRule, priority: OpPriority, allowed: Direction) -> tuple[Ways, ...]:
    """Return the factors and directions of each level, without factors that propagation may not split."""
    found: list[list[tuple[int, Direction]]] = [[] for _ in range(LEVELS)]
    for index, factor in enumerate(rule.factors):
        if factor.blocked or factor.pinned is not None:
            continue
        for level, way in enumerate(directions(priority, factor.kind)):
            both = way if allowed is Direction.BOTH else way.meet(allowed)
            if both is not Direction.NONE:
                found[level].append((index, both))
    return tuple(map(tuple, found))


@dataclass(frozen=True, slots=True)
class FactorCandidate:
    """The longest list of axes that any tensor of an edge has for a factor, and that tensor."""

    factor: int
    axes: Axes
    source: ValueSharding
    way: Direction = Direction.BOTH


@dataclass(frozen=True, slots=True)
class Round:
    """One fixpoint: a user priority, a level, and whether it resolves conflicts."""

    user_priority: int
    level: int
    resolves_conflicts: bool

    @property
    def number(self) -> int:
        """The index among the rounds of the same user priority."""
        return 2 * self.level + self.resolves_conflicts


def propagate(
    axes: DeviceAxes, edges: Sequence[Edge], shardings: Iterable[ValueSharding] = ()
) -> None:
    """Run all rounds. The result is in the shardings of the edges and in ``shardings``, those that may have no edge."""
    for position, edge in enumerate(edges):
        edge.position = position
    waiting = [sharding for sharding in _all_shardings(edges, shardings) if sharding.deferred]
    for priority in sorted({0} | {w.priority for sharding in waiting for w in sharding.deferred}):
        for sharding in waiting:
            sharding.release(priority)
        for level in range(LEVELS):
            for resolves in (False, True):
                _fixpoint(axes, edges, Round(priority, level, resolves))


def _all_shardings(
    edges: Sequence[Edge], shardings: Iterable[ValueSharding]
) -> list[ValueSharding]:
    found = dict.fromkeys(shardings)
    found.update(dict.fromkeys(sharding for edge in edges for _, sharding in edge.tensors))
    return list(found)


def _fixpoint(axes: DeviceAxes, edges: Sequence[Edge], current: Round) -> None:
    work = [edge for edge in edges if edge.is_due(current)]
    forwards = True
    while work:
        queue: dict[int, Edge] = {}
        for edge in work if forwards else reversed(work):
            for sharding in visit(axes, edge, current):
                queue.update((e.position, e) for e in sharding.edges)
        work = [queue[i] for i in sorted(queue) if queue[i].is_due(current)]
        forwards = not forwards


def visit(axes: DeviceAxes, edge: Edge, current: Round) -> list[ValueSharding]:
    """Pass axes along one edge. Returns the shardings that grew."""
    rule = edge.rule
    edge.visited, edge.contested = current.number, False
    asked = [
        project(axes, rule, mapping, sharding.state_dims) for mapping, sharding in edge.tensors
    ]
    found = factor_candidates(edge, asked, current.level)
    if found and not current.resolves_conflicts:
        agreed = _uncontested(asked, found)
        edge.contested = len(agreed) < len(found)
        found = agreed
    grown: dict[ValueSharding, None] = {}
    for candidate in found:
        for tensor, ((mapping, sharding), have) in enumerate(zip(edge.tensors, asked, strict=True)):
            own = have[candidate.factor]
            if len(own) >= len(candidate.axes) or candidate.axes[: len(own)] != own:
                continue
            dim = rule.factor_dim(mapping, candidate.factor)
            if dim is None or not sharding.open[dim] or not edge.may_receive(tensor, candidate.way):
                continue
            if _extend(
                axes, rule, mapping[dim], candidate.factor, have, sharding, dim, candidate.axes
            ):
                sharding.because = sharding.because or edge.name
                cause = AxisCause(edge.name, candidate.source, current.user_priority)
                sharding.causes.update(
                    {a: cause for a in sharding.dims[dim] if a not in sharding.causes}
                )
                grown[sharding] = None
    for sharding in grown:
        for neighbour in sharding.edges:
            neighbour.visited = -1
    return list(grown)


def factor_candidates(
    edge: Edge, asked: Sequence[Assignment], level: int = LAST_LEVEL
) -> list[FactorCandidate]:
    """Return for each factor the longest axes of any tensor that may send at ``level``.

    Candidates of large tensors come first, so that they win a contested axis.
    """
    found: list[tuple[int, FactorCandidate]] = []
    for factor, way in edge.ways[level]:
        best: Axes = ()
        weight = 0
        source: ValueSharding | None = None
        for tensor, (have, (_, sharding)) in enumerate(zip(asked, edge.tensors, strict=True)):
            factor_axes = have[factor]
            if not factor_axes or not edge.may_send(tensor, way):
                continue
            if len(factor_axes) > len(best) or (factor_axes == best and sharding.weight > weight):
                best, weight, source = factor_axes, sharding.weight, sharding
        if source is not None:
            found.append((-weight, FactorCandidate(factor, best, source, way)))
    return [candidate for _, candidate in sorted(found, key=lambda o: (o[0], o[1].factor))]


def _uncontested(
    asked: Sequence[Assignment], found: Sequence[FactorCandidate]
) -> list[FactorCandidate]:
    """Return the candidates whose axes no tensor of the edge has for another factor, or in another order for this
    one.
    """
    wanted: dict[int, set[int]] = {}
    for have in asked:
        for factor, factor_axes in enumerate(have):
            for axis in factor_axes:
                wanted.setdefault(axis, set()).add(factor)
    return [
        candidate
        for candidate in found
        if all(len(wanted[axis]) == 1 for axis in candidate.axes)
        and all(
            candidate.axes[: len(have[candidate.factor])] == have[candidate.factor]
            for have in asked
        )
    ]


def _extend(
    axes: DeviceAxes,
    rule: OpShardingRule,
    parts: tuple[int, ...],
    factor: int,
    have: Assignment,
    sharding: ValueSharding,
    dim: int,
    wanted: Axes,
) -> bool:
    """Append the axes of ``wanted`` beyond those that dimension ``dim`` has already, as far as they fit. Returns
    whether the sharding grew.
    """
    if not _is_minor_end(axes, rule, parts, factor, have):
        return False
    size = rule.factors[factor].size
    used = sharding.unavailable()
    grew = False
    split = axes.count(have[factor])
    for axis in wanted[len(have[factor]) :]:
        split *= axes.sizes[axis]
        if axis in used or size < split or (len(parts) > 1 and size % split):
            break
        sharding.dims[dim] = (*sharding.dims[dim], axis)
        used.add(axis)
        grew = True
    return grew


def _is_minor_end(
    axes: DeviceAxes, rule: OpShardingRule, parts: tuple[int, ...], factor: int, have: Assignment
) -> bool:
    """Return whether more axes for ``factor`` keep the dimension one contiguous tiling: all factors before it are split
    completely, none after it is split.
    """
    position = parts.index(factor)
    before = all(axes.count(have[p]) == rule.factors[p].size for p in parts[:position])
    after = all(math.prod(axes.sizes[a] for a in have[p]) == 1 for p in parts[position + 1 :])
    return before and after
