"""Conflicts of propagation: two tensors of one op that require different shardings, and which one prevailed.

They are read off the shardings after propagation: a conflict is an edge whose candidate axes a tensor could not take.
"""

from __future__ import annotations

from collections.abc import Iterator

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.explain.axis_names import AxisNames
from partitioner.explain.causes import axis_chain
from partitioner.explain.report import Conflict
from partitioner.propagation.driver import Edge, ValueSharding, factor_candidates
from partitioner.propagation.projection import project
from partitioner.report import PartitionReport


def find_conflicts(
    axes: DeviceAxes, edges: list[Edge], report: PartitionReport, names: AxisNames
) -> tuple[Conflict, ...]:
    moved: dict[str, set[str]] = {}
    for record in report.reshards:
        moved.setdefault(record.serving.name, set()).add(record.value.name)
    found: dict[Conflict, None] = {}
    for edge in edges:
        for conflict in _of_edge(axes, edge, moved.get(edge.name, set()), names):
            found[conflict] = None
    return tuple(found)


def _of_edge(axes: DeviceAxes, edge: Edge, moved: set[str], names: AxisNames) -> Iterator[Conflict]:
    rule = edge.rule
    asked = [
        project(axes, rule, mapping, sharding.state_dims) for mapping, sharding in edge.tensors
    ]
    for candidate in factor_candidates(edge, asked):
        wanted, source = candidate.axes, candidate.source
        for tensor, ((mapping, sharding), have) in enumerate(zip(edge.tensors, asked, strict=True)):
            dim = rule.factor_dim(mapping, candidate.factor)
            own = have[candidate.factor]
            if dim is None or sharding is source or not edge.may_receive(tensor, candidate.way):
                continue
            if wanted[: len(own)] != own:
                yield _factor_conflict(edge.name, source, wanted, sharding, dim, own, moved, names)
            elif sharding.open[dim] and len(wanted) > len(own):
                yield from _axis_conflict(edge.name, source, sharding, dim, wanted[len(own)], names)


def _factor_conflict(
    op: str,
    source: ValueSharding,
    wanted: Axes,
    sharding: ValueSharding,
    dim: int,
    own: Axes,
    moved: set[str],
    names: AxisNames,
) -> Conflict:
    """Return the conflict of two tensors that both have axes for one factor, neither list being a prefix of
    the other.
    """
    text = (
        f"dimension {dim} of {sharding.name} is split by {names.join(own)}, "
        f"but {source.name} splits the same index by {names.join(wanted)}"
    )
    ranks = _priority(source, wanted), _priority(sharding, own)
    if ranks[0] != ranks[1]:
        first, rank = (source, ranks[0]) if ranks[0] < ranks[1] else (sharding, ranks[1])
        text += f"; {first.name} has precedence (priority {rank} before {max(ranks)})"
    return Conflict(op, "index", text, _winner(source.name, sharding.name, moved))


def _priority(sharding: ValueSharding, dim_axes: Axes) -> int:
    """Return the user priority at which a value got its first axis of ``dim_axes``."""
    cause = sharding.causes.get(dim_axes[0]) if dim_axes else None
    return cause.priority if cause is not None else 0


def _winner(first: str, second: str, moved: set[str]) -> str:
    """Return the tensor that has its sharding still, while the other was resharded for the op."""
    if first in moved and second in moved:
        return "neither"
    if first not in moved and second not in moved:
        return f"both ({first} and {second} keep their shardings)"
    return second if first in moved else first


def _axis_conflict(
    op: str, source: ValueSharding, sharding: ValueSharding, dim: int, axis: int, names: AxisNames
) -> Iterator[Conflict]:
    """Yield the conflict if the candidate axis for one dimension already splits another."""
    for other, dim_axes in enumerate(sharding.dims):
        if axis in dim_axes and other != dim:
            text = (
                f"{source.name} propagates axis {names[axis]} to dimension {dim} of {sharding.name}, "
                f"whose dimension {other} is split by it"
            )
            chain = axis_chain(sharding, axis)
            mine, theirs = _priority(sharding, (axis,)), _priority(source, (axis,))
            if mine < theirs:
                text += f" (priority {mine} before {theirs})"
            yield Conflict(op, "axis", text, chain[0] if chain else sharding.name)
