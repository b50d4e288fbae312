"""Which devices form a group, for every meaning that ids can have."""

from __future__ import annotations

import pytest

from spmd.device import CollectiveGroupMode
from spmd.errors import ShapeError
from spmd.hlo import HloInstruction
from spmd.ops.groups import device_groups, device_pairs, group_mode, group_size
from spmd.text.parser import parse_module

SUM = "sum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT r = f32[] add(x, y)\n}\n"


def collective(operation: str) -> HloInstruction:
    header = "HloModule t, replica_count=2, num_partitions=3\n"
    return parse_module(
        f"{header}\n{SUM}\nENTRY e {{\n  a = f32[6] parameter(0)\n  ROOT c = {operation}\n}}\n"
    ).entry.root


@pytest.mark.parametrize(
    ("attributes", "mode", "groups"),
    [
        ("replica_groups={{0,1}}", CollectiveGroupMode.CROSS_REPLICA, ((0, 3), (1, 4), (2, 5))),
        ("replica_groups={}", CollectiveGroupMode.CROSS_REPLICA, ((0, 3), (1, 4), (2, 5))),
        (
            "replica_groups={{0},{1}}, channel_id=1",
            CollectiveGroupMode.CROSS_REPLICA_AND_PARTITION,
            ((0, 1, 2), (3, 4, 5)),
        ),
        (
            "replica_groups={{0,5},{1,4}}, channel_id=1, use_global_device_ids=true",
            CollectiveGroupMode.FLATTENED_ID,
            ((0, 5), (1, 4)),
        ),
    ],
)
def test_all_reduce(
    attributes: str, mode: CollectiveGroupMode, groups: tuple[tuple[int, ...], ...]
) -> None:
    x = collective(f"f32[6] all-reduce(a), {attributes}, to_apply=sum")
    assert group_mode(x) is mode
    assert device_groups(x, 3, 2) == groups
    assert group_size(x) == len(groups[0])


def test_all_to_all_over_partitions_happens_in_each_replica() -> None:
    x = collective("f32[6] all-to-all(a), dimensions={0}, channel_id=1, replica_groups={{0,2,1}}")
    assert device_groups(x, 3, 2) == ((0, 2, 1), (3, 5, 4))


def test_pairs_of_partitions_and_of_replicas() -> None:
    partitions = collective(
        "f32[6] collective-permute(a), channel_id=1, source_target_pairs={{0,1}}"
    )
    replicas = collective("f32[6] collective-permute(a), source_target_pairs={{0,1}}")
    assert device_pairs(partitions, 3, 2) == ((0, 1), (3, 4))
    assert device_pairs(replicas, 3, 2) == ((0, 3), (1, 4), (2, 5))


def test_global_ids_need_a_channel() -> None:
    x = collective(
        "f32[6] all-reduce(a), replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum"
    )
    with pytest.raises(ShapeError, match="channel_id"):
        group_mode(x)
