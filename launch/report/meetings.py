"""Groups of devices of a collective: of an instruction, and of a trace's note of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from spmd.hlo import HloInstruction, HloModule
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.groups import device_groups, device_pairs

Groups: TypeAlias = tuple[tuple[int, ...], ...]
Pairs: TypeAlias = tuple[tuple[int, int], ...]


def groups_and_pairs(collective: HloInstruction, module: HloModule) -> tuple[Groups, Pairs]:
    """Return the groups of devices, or the (source, target) pairs of a permute; the other one is empty."""
    sizes = module.num_partitions, module.replica_count
    if isinstance(collective.attrs, CollectivePermuteAttrs):
        return (), tuple((int(s), int(t)) for s, t in device_pairs(collective, *sizes))
    return device_groups(collective, *sizes), ()


def who_meets(
    groups: Iterable[tuple[int, ...]], pairs: Iterable[tuple[int, int]]
) -> dict[int, tuple[int, ...]]:
    """Return for each device the devices that it communicates with, itself included: its group, or its sources and
    targets.
    """
    met: dict[int, set[int]] = {}
    for source, target in pairs:
        met.setdefault(source, {source}).add(target)
        met.setdefault(target, {target}).add(source)
    found = {device: tuple(sorted(others)) for device, others in met.items()}
    for group in groups:
        for device in group:
            found.setdefault(device, group)
    return found
