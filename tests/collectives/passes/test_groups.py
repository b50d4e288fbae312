"""Groups of devices: which a collective has, and how groups are written."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from collectives.passes.groups import known_groups, named_groups
from spmd.device import ReplicaGroups
from spmd.device_groups import DeviceGroups
from spmd.text.parser import parse_module

Groups: TypeAlias = tuple[tuple[int, ...], ...]

PAIRS: Groups = ((0, 1), (2, 3))
ACROSS: Groups = ((0, 2), (1, 3))


@pytest.mark.parametrize(
    ("groups", "written"),
    [
        (PAIRS, "[2,2]<=[4]"),
        (ACROSS, "[2,2]<=[2,2]T(1,0)"),
        (((0, 1, 2, 3),), "[1,4]<=[4]"),
        (((0, 3), (1, 2)), None),
        (((0, 1, 2), (3,)), None),
    ],
)
def test_groups_are_written_as_counts_where_they_are(groups: Groups, written: str | None) -> None:
    named = named_groups(DeviceGroups.of(groups))
    assert named.expand(4) == groups
    assert (str(named.iota) if named.iota is not None else None) == written


def test_covers() -> None:
    assert DeviceGroups.of(PAIRS).covers(4)
    assert not DeviceGroups.of(PAIRS).covers(5)
    assert not DeviceGroups.of(((0, 1), (1, 2))).covers(3)


@pytest.mark.parametrize(
    ("header", "groups", "known"),
    [
        (
            "num_partitions=4",
            "replica_groups={{2,3},{0,1}}, channel_id=1, use_global_device_ids=true",
            PAIRS,
        ),
        ("num_partitions=4", "replica_groups={}", ((0,), (1,), (2,), (3,))),
        ("num_partitions=2, replica_count=2", "replica_groups={}", ACROSS),
        ("num_partitions=2, replica_count=2", "replica_groups={{0},{1}}, channel_id=1", PAIRS),
        ("num_partitions=1", "replica_groups={{0,1}}", None),
    ],
)
def test_known_groups(header: str, groups: str, known: Groups | None) -> None:
    """Groups are known by their first member; none is known where the header leaves the devices out."""
    module = parse_module(
        f"""HloModule m, {header}

        add {{
          p = f32[] parameter(0)
          q = f32[] parameter(1)
          ROOT s = f32[] add(p, q)
        }}

        ENTRY e {{
          x = f32[4] parameter(0)
          ROOT r = f32[4] all-reduce(x), {groups}, to_apply=add
        }}"""
    )
    found = known_groups(module.entry.root)
    assert (None if found is None else tuple(found)) == known


def test_no_groups_is_one_of_all() -> None:
    assert named_groups(DeviceGroups.of(((0, 1, 2, 3),))).expand(4) == ReplicaGroups().expand(4)
