"""Sharding propagation: one fixpoint over factors, knowing nothing of opcodes.

The program is a graph of slots (one per array value) and edges (one per op, holding its sharding
rule). A slot's sharding
only grows: axes are appended to the minor end of dimensions that are open. An edge passes a
factor's axes from the tensor
that has the most of them to the tensors that have fewer, as long as what these have is a prefix.

Worked example, dot [i,k]x[k,j]->[i,j] with lhs ((0,),()) and rhs ((),(1,)): factor i has (0,), j has (1,); the result
becomes ((0,),(1,)).

Levels: shape-keeping ops first (level 0), then all ops, so that a sharding follows the value itself before it crosses a
contraction. Within a level a sweep visits edges forwards, then backwards, and only those with a changed slot.
Each slot can grow at most (number of axes) times, so the work is linear in the number of edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from partitioner.axes import Axes, DeviceAxes, DimAxes
from partitioner.projection import Assignment, project
from partitioner.rule import FactorKind, OpShardingRule, TensorMapping
from spmd.shape import ArrayShape


@dataclass(frozen=True, slots=True)
class AxisCause:
    """Why a slot has an axis: op ``by`` brought it from ``source``, or (None) the annotation ``by`` demands it."""

    by: str
    source: Slot | None = None


@dataclass(eq=False, slots=True)
class Slot:
    """One array value's sharding while it is being found. Compared by identity.

    ``open[d]``: dimension d may take further axes. ``forbidden``: axes that are manual where the value lives.
    ``because``: who gave it what it has first; ``causes``: who gave it each axis, for explanations.
    """

    shape: ArrayShape
    dims: list[Axes]
    open: list[bool]
    name: str = ""
    forbidden: Axes = ()
    because: str = ""
    causes: dict[int, AxisCause] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    @staticmethod
    def for_shape(shape: ArrayShape, name: str) -> Slot:
        return Slot(shape, [()] * shape.rank, [True] * shape.rank, name)

    def fix(self, dims: DimAxes, open_dims: Sequence[bool], because: str) -> None:
        self.dims = list(dims)
        self.open = list(open_dims)
        self.because = because
        self.causes = {axis: AxisCause(because) for held in dims for axis in held}

    @property
    def state_dims(self) -> DimAxes:
        return tuple(self.dims)


@dataclass(eq=False, slots=True)
class Edge:
    """One op between slots; ``tensors`` are operands then results, with their mappings."""

    rule: OpShardingRule
    tensors: tuple[tuple[TensorMapping, Slot], ...]
    name: str
    level: int
    position: int = 0
    queued: bool = False

    @staticmethod
    def connect(
        rule: OpShardingRule,
        operands: Sequence[Slot],
        results: Sequence[Slot],
        name: str,
        level: int,
    ) -> Edge:
        tensors = (
            *zip(rule.operands, operands, strict=True),
            *zip(rule.results, results, strict=True),
        )
        edge = Edge(rule, tensors, name, level)
        for slot in dict.fromkeys(slot for _, slot in tensors):
            slot.edges.append(edge)
        return edge


MAX_LEVEL = 1


def propagate(axes: DeviceAxes, edges: Sequence[Edge]) -> None:
    """Run all levels to the fixpoint; slots hold the result."""
    for position, edge in enumerate(edges):
        edge.position = position
    for level in range(MAX_LEVEL + 1):
        _fixpoint(axes, [e for e in edges if e.level <= level], level)


def _fixpoint(axes: DeviceAxes, edges: Sequence[Edge], level: int) -> None:
    work = list(edges)
    forwards = True
    while work:
        for edge in work:
            edge.queued = True
        queue: list[Edge] = []
        ordered = work if forwards else list(reversed(work))
        for edge in ordered:
            edge.queued = False
            for slot in visit(axes, edge):
                queue.extend(slot.edges)
        work = sorted(
            {e.position: e for e in queue if e.level <= level}.values(), key=lambda e: e.position
        )
        forwards = not forwards


def visit(axes: DeviceAxes, edge: Edge) -> list[Slot]:
    """Pass axes along one edge; returns the slots that grew."""
    rule = edge.rule
    asked = [project(axes, rule, mapping, slot.state_dims) for mapping, slot in edge.tensors]
    grown: dict[Slot, None] = {}
    for factor, offer, source in offers(rule, edge.tensors, asked):
        for (mapping, slot), have in zip(edge.tensors, asked, strict=True):
            dim = rule.factor_dim(mapping, factor)
            if dim is None or not slot.open[dim]:
                continue
            if offer[: len(have[factor])] != have[factor]:
                continue
            if _extend(axes, rule, mapping[dim], factor, have, slot, dim, offer):
                slot.because = slot.because or edge.name
                cause = AxisCause(edge.name, source)
                slot.causes.update({a: cause for a in slot.dims[dim] if a not in slot.causes})
                grown[slot] = None
    return list(grown)


def offers(
    rule: OpShardingRule, tensors: Iterable[tuple[TensorMapping, Slot]], asked: Sequence[Assignment]
) -> list[tuple[int, Axes, Slot]]:
    """Per factor the longest axes any tensor has, and that tensor.

    Those of large tensors come first, so that they win a contested axis.
    """
    found: list[tuple[int, int, Axes, Slot]] = []
    slots = [slot for _, slot in tensors]
    for index, factor in enumerate(rule.factors):
        if (
            factor.kind is FactorKind.NEED_REPLICATION
            or factor.blocked
            or factor.pinned is not None
        ):
            continue
        best: Axes = ()
        weight = 0
        source: Slot | None = None
        for have, slot in zip(asked, slots, strict=True):
            size = slot.shape.byte_size
            if len(have[index]) > len(best) or (have[index] == best and best and size > weight):
                best, weight, source = have[index], size, slot
        if source is not None:
            found.append((-weight, index, best, source))
    return [(i, best, source) for _, i, best, source in sorted(found, key=lambda o: o[:3])]


def _extend(
    axes: DeviceAxes,
    rule: OpShardingRule,
    parts: tuple[int, ...],
    factor: int,
    have: Assignment,
    slot: Slot,
    dim: int,
    offer: Axes,
) -> bool:
    """Append the axes that ``offer`` has beyond the slot's own to its dimension, where they fit."""
    if not _is_minor_end(axes, rule, parts, factor, have):
        return False
    size = rule.factors[factor].size
    used = {a for d in slot.dims for a in d} | set(slot.forbidden)
    grew = False
    split = axes.count(have[factor])
    for axis in offer[len(have[factor]) :]:
        split *= axes.sizes[axis]
        if axis in used or size < split or (len(parts) > 1 and size % split):
            break
        slot.dims[dim] = (*slot.dims[dim], axis)
        used.add(axis)
        grew = True
    return grew


def _is_minor_end(
    axes: DeviceAxes, rule: OpShardingRule, parts: tuple[int, ...], factor: int, have: Assignment
) -> bool:
    """More axes for ``factor`` keep the dimension one contiguous tiling: all before it complete,
    none after it split.
    """
    position = parts.index(factor)
    before = all(axes.count(have[p]) == rule.factors[p].size for p in parts[:position])
    after = all(math.prod(axes.sizes[a] for a in have[p]) == 1 for p in parts[position + 1 :])
    return before and after
