"""Conversions between two views of a sharding: axes per dimension of a tensor, and axes per factor of an op.

A dimension made of factors (i, j) is split by the axes of i, then those of j. That is one contiguous tiling only if i
is split completely before j is split at all, and every part except the last divides evenly. ``legalize`` cuts an
assignment back to one that all tensors of the rule can express.
"""

from __future__ import annotations

from collections.abc import Iterable

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, TensorMapping

#: Axes of each factor of a rule, in the rule's order.
Assignment = tuple[Axes, ...]


def empty_assignment(rule: OpShardingRule) -> Assignment:
    return tuple(f.pinned or () for f in rule.factors)


def project(
    axes: DeviceAxes, rule: OpShardingRule, mapping: TensorMapping, dims: DimAxes
) -> Assignment:
    """Return the factor axes of a tensor split as ``dims``; axes that no factor can take are dropped."""
    result: list[Axes] = [()] * len(rule.factors)
    for parts, split in zip(mapping, dims, strict=True):
        if len(parts) == 1:
            result[parts[0]] = split
            continue
        rest = list(split)
        for factor in parts:
            size = rule.factors[factor].size
            taken: list[int] = []
            while rest and size % axes.count((*taken, rest[0])) == 0:
                taken.append(rest.pop(0))
            result[factor] = tuple(taken)
            if axes.count(taken) != size:
                break
    return tuple(result)


def tensor_dims(mapping: TensorMapping, assignment: Assignment) -> DimAxes:
    """Return the axes per dimension of a tensor under a legal assignment."""
    return tuple(tuple(a for factor in parts for a in assignment[factor]) for parts in mapping)


def legalize(axes: DeviceAxes, rule: OpShardingRule, assignment: Assignment) -> Assignment:
    """Cut ``assignment`` back to one that every tensor of the rule can express."""
    result = [
        (() if f.kind is FactorKind.NEED_REPLICATION else chosen) if f.pinned is None else f.pinned
        for f, chosen in zip(rule.factors, assignment, strict=True)
    ]
    mappings = [m for m in (*rule.operands, *rule.results) if any(len(parts) > 1 for parts in m)]
    changed = True
    while changed:
        changed = False
        for mapping in mappings:
            for parts in mapping:
                if len(parts) > 1 and _cut_back(axes, rule, parts, result):
                    changed = True
    return tuple(result)


def _cut_back(
    axes: DeviceAxes, rule: OpShardingRule, parts: tuple[int, ...], result: list[Axes]
) -> bool:
    changed = False
    open_parts = True
    for factor in parts:
        size, chosen = rule.factors[factor].size, result[factor]
        keep = chosen if open_parts else ()
        while keep and size % axes.count(keep):
            keep = keep[:-1]
        if rule.factors[factor].pinned is not None:
            keep = chosen
        if keep != chosen:
            result[factor] = keep
            changed = True
        open_parts = open_parts and axes.count(keep) == size
    return changed


def merge(rule: OpShardingRule, base: Assignment, more: Assignment) -> Assignment:
    """Extend ``base`` by the axes of ``more`` that do not clash: each axis splits the iteration space at most once."""
    used = {a for chosen in base for a in chosen}
    result = list(base)
    for factor, wanted in enumerate(more):
        have = result[factor]
        if wanted[: len(have)] != have or rule.factors[factor].pinned is not None:
            continue
        for axis in wanted[len(have) :]:
            if axis in used:
                break
            result[factor] = (*result[factor], axis)
            used.add(axis)
    return tuple(result)


def without_axes(
    assignment: Assignment, forbidden: Iterable[int], rule: OpShardingRule
) -> Assignment:
    """Return each factor's axes up to the first forbidden one; pinned factors stay."""
    banned = frozenset(forbidden)
    return tuple(
        chosen if rule.factors[i].pinned is not None else _until(chosen, banned)
        for i, chosen in enumerate(assignment)
    )


def _until(chosen: Axes, banned: frozenset[int]) -> Axes:
    for i, axis in enumerate(chosen):
        if axis in banned:
            return chosen[:i]
    return chosen
