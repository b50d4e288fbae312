"""Tests of which devices form a group, for every meaning that ids can have."""

from __future__ import annotations

import pytest

from spmd.device import CollectiveGroupMode
from spmd.errors import ShapeError, VerificationError
from spmd.hlo import HloInstruction
from spmd.ops.groups import device_groups, device_pairs, group_mode, group_size
from spmd.text.parser import parse_module
from spmd.verifier import verify

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


@pytest.mark.parametrize(
    "operation",
    [
        "f32[12] all-gather(a), dimensions={0}, replica_groups={}",
        "f32[3] reduce-scatter(a), dimensions={0}, replica_groups={}, to_apply=sum",
        "f32[6] all-to-all(a), dimensions={0}, replica_groups={}",
    ],
)
def test_one_group_of_all_in_a_module_that_does_not_say_how_many(operation: str) -> None:
    """JAX's text states no num_partitions: the written result tells the group's size."""
    text = (
        f"HloModule t\n{SUM}\nENTRY e {{\n  a = f32[6] parameter(0)\n  ROOT c = {operation}\n}}\n"
    )
    module = parse_module(text)
    assert group_size(module.entry.root) is None
    verify(module)
    told = parse_module(text.replace("HloModule t", "HloModule t, replica_count=2"))
    assert group_size(told.entry.root) == 2
    verify(told)


def test_a_result_that_no_group_gives_is_refused() -> None:
    text = "HloModule t\nENTRY e {\n  a = f32[6] parameter(0)\n  ROOT c = f32[13] OP\n}\n"
    gather = text.replace("OP", "all-gather(a), dimensions={0}, replica_groups={}")
    with pytest.raises(VerificationError, match="expected shape"):
        verify(parse_module(gather))
