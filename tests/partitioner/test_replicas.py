"""Tests of several replicas: all are partitioned alike, each on its own devices (replica x partitions + partition)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import spmd
from partitioner.spmd_partitioner import partition_module
from spmd.errors import ShardingError
from spmd.hlo import HloModule, Opcode
from spmd.ops.attrs import CollectiveAttrs
from tests.differential.tiling import Tiling, gather, read_tiling, scatter, split_tuple

Array = np.ndarray[Any, np.dtype[Any]]

SUM = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
"""
ROWS = "sharding={devices=[2,1]<=[2]}"
COLUMNS = "sharding={devices=[1,2]<=[2]}"


def tilings(module: HloModule, partitions: int) -> tuple[list[Tiling], list[Tiling]]:
    """Return the tilings of the parameters and of the outputs, by the printed shardings."""
    parameters = [
        read_tiling(str(p.sharding), p.array_shape.rank, partitions)
        for p in module.entry.parameters
    ]
    root = module.entry.root
    outputs = [
        read_tiling(text, operand.array_shape.rank, partitions)
        for text, operand in zip(split_tuple(str(root.sharding)), root.operands, strict=True)
    ]
    return parameters, outputs


def run_replicas(
    module: HloModule, partitions: int, inputs: Sequence[Sequence[Array]], *, execute: bool = False
) -> list[list[Array]]:
    """Return the global outputs of each replica on global inputs of its own.

    The replicas are evaluated in lock step, or executed on loopback devices.
    """
    devices = partitions * len(inputs)
    partitioned = spmd.partition(module, devices)
    assert (partitioned.replica_count, partitioned.num_partitions) == (len(inputs), partitions)
    ins, outs = tilings(partitioned, partitions)
    parts = [[scatter(x, t) for x, t in zip(xs, ins, strict=True)] for xs in inputs]
    per_device = [
        [part[p] for part in of_replica] for of_replica in parts for p in range(partitions)
    ]
    if execute:
        executable = spmd.compile(module, devices, options=spmd.CompileOptions(check=True))
        results = executable.run_devices(per_device)
    else:
        results = spmd.evaluate_partitions(partitioned, per_device)
    found = []
    for replica in range(len(inputs)):
        mine = results[replica * partitions : (replica + 1) * partitions]
        whole = []
        for i, tiling in enumerate(outs):
            tiles = [np.asarray(outputs[i]) for outputs in mine]
            dims = module.entry.root.operand(i).dims
            array, disagreements = gather(tiles, tiling, dims)
            assert disagreements == []
            whole.append(array)
        found.append(whole)
    return found


def check(text: str, partitions: int, replicas: int, *, execute: bool = False) -> HloModule:
    """Check that replicas of partitions compute what the module does with one device per replica.

    ``text`` has no collectives between partitions. Returns the partitioned module.
    """
    module = spmd.parse(text.replace("HloModule m", f"HloModule m, replica_count={replicas}"))
    draw = np.random.default_rng(0)
    inputs = [
        [draw.integers(-4, 5, p.dims).astype(np.float32) for p in module.entry.parameters]
        for _ in range(replicas)
    ]
    wanted = spmd.evaluate_partitions(module, inputs)
    found = run_replicas(module, partitions, inputs, execute=execute)
    for of_replica, want in zip(found, wanted, strict=True):
        for got, expected in zip(of_replica, want, strict=True):
            np.testing.assert_array_equal(got, np.asarray(expected))
    return spmd.partition(module, partitions * replicas)


#: Every kind of collective that the partitioner writes: sums, a gather, an exchange, a halo.
LOCAL = f"""HloModule m
{SUM}
ENTRY main {{
  x = f32[4,6] parameter(0), {ROWS}
  w = f32[6,4] parameter(1), {ROWS}
  y = f32[4,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  whole = f32[4,6] custom-call(x), custom_call_target="Sharding", sharding={{replicated}}
  turned = f32[4,6] custom-call(x), custom_call_target="Sharding", {COLUMNS}
  rest = f32[3,6] slice(x), slice={{[1:4], [0:6]}}
  zero = f32[] constant(0)
  total = f32[6] reduce(x, zero), dimensions={{0}}, to_apply=sum
  ROOT r = (f32[4,4], f32[4,6], f32[4,6], f32[3,6], f32[6]) tuple(y, whole, turned, rest, total)
}}
"""

#: A step with data parallelism over replicas and tensor parallelism over partitions, as pmap of a partitioned function.
ACROSS = f"""HloModule m
{SUM}
ENTRY main {{
  x = f32[4,6] parameter(0), {COLUMNS}
  w = f32[6,4] parameter(1), {ROWS}
  y = f32[4,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  g = f32[6,4] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  sum_g = f32[6,4] all-reduce(g), replica_groups={{}}, to_apply=sum
  moved = f32[6,4] collective-permute(g), source_target_pairs={{{{0,1}},{{1,0}}}}
  all = f32[12,4] all-gather(g), replica_groups={{{{0,1}}}}, dimensions={{0}}
  id = u32[] replica-id()
  f = f32[] convert(id)
  b = f32[6,4] broadcast(f), dimensions={{}}
  tagged = f32[6,4] add(sum_g, b)
  ROOT r = (f32[6,4], f32[6,4], f32[12,4]) tuple(tagged, moved, all)
}}
"""


@pytest.mark.parametrize("execute", [False, True], ids=["lockstep", "loopback"])
@pytest.mark.parametrize("text", [LOCAL, ACROSS], ids=["local", "across"])
def test_each_replica_computes_what_it_would_alone(text: str, execute: bool) -> None:
    check(text, partitions=2, replicas=2, execute=execute)


def test_three_replicas_of_four_partitions() -> None:
    text = LOCAL.replace("devices=[2,1]<=[2]", "devices=[4,1]<=[4]").replace(
        "devices=[1,2]<=[2]", "devices=[2,2]<=[4]"
    )
    check(text.replace("{{0,1}}", "{{0,1,2}}"), partitions=4, replicas=3)


def test_groups_of_the_partitioner_stay_within_a_replica() -> None:
    module = check(LOCAL, partitions=2, replicas=2)
    groups = {
        i.attrs_as(CollectiveAttrs).replica_groups.expand(4)
        for i in module.all_instructions()
        if i.opcode in (Opcode.ALL_REDUCE, Opcode.ALL_GATHER, Opcode.REDUCE_SCATTER)
    }
    assert groups == {((0, 1), (2, 3))}


def test_a_mesh_in_another_device_order() -> None:
    text = LOCAL.replace("devices=[2,1]<=[2]", "devices=[2,1]1,0").replace(
        "devices=[1,2]<=[2]", "devices=[1,2]1,0"
    )
    check(text, partitions=2, replicas=2)
    check(
        ACROSS.replace("devices=[2,1]<=[2]", "devices=[2,1]1,0").replace("[1,2]<=[2]", "[1,2]1,0"),
        2,
        2,
    )


#: Collectives that a program writes itself in a manual region, in every way of naming groups.
MANUAL = f"""HloModule m, replica_count=2
{SUM}
ENTRY main {{
  x = f32[4,2] parameter(0), ORDERED
  s = f32[4,2] custom-call(x), custom_call_target="Sharding", ORDERED
  l = f32[2,2] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={{manual}}
  partitions = f32[2,2] all-reduce(l), channel_id=1, replica_groups={{{{0}},{{1}}}}, to_apply=sum
  both = f32[2,2] all-reduce(l), channel_id=2, replica_groups={{{{0,1}}}}, to_apply=sum
  flat = f32[2,2] all-reduce(l), channel_id=3, replica_groups={{{{0,3}},{{1,2}}}}, use_global_device_ids=true, to_apply=sum
  replicas = f32[2,2] all-reduce(l), replica_groups={{{{0,1}}}}, to_apply=sum
  gathered = f32[4,2] all-gather(l), channel_id=4, replica_groups={{{{0}},{{1}}}}, dimensions={{0}}
  part = f32[2,2] slice(gathered), slice={{[0:2], [0:2]}}
  sent = f32[2,2] collective-permute(l), channel_id=5, source_target_pairs={{{{0,1}},{{1,0}}}}
  t = f32[12,2] concatenate(partitions, both, flat, replicas, part, sent), dimensions={{0}}
  t2 = f32[12,2] custom-call(t), custom_call_target="Sharding", sharding={{manual}}
  o = f32[24,2] custom-call(t2), custom_call_target="SPMDShardToFullShape", ORDERED
  ROOT r = (f32[24,2]) tuple(o)
}}
"""


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_collectives_in_manual_regions(order: tuple[int, int]) -> None:
    """Device d of replica r holds rows of value 10 r + its tile's number + 1."""
    text = MANUAL.replace("ORDERED", f"sharding={{devices=[2,1]{order[0]},{order[1]}}}")
    values = [[10.0 * r + tile + 1 for tile in range(2)] for r in range(2)]
    inputs = [
        [np.repeat(np.array(values[r], np.float32), 2)[:, None] * np.ones((1, 2), np.float32)]
        for r in range(2)
    ]
    found = run_replicas(spmd.parse(text), 2, inputs)
    on_device = [[values[r][order.index(d)] for d in range(2)] for r in range(2)]
    flat = [v for of_replica in on_device for v in of_replica]
    for r in range(2):
        rows = found[r][0][:, 0].reshape(2, 6, 2)
        assert (rows[:, :, 0] == rows[:, :, 1]).all()
        for tile in range(2):
            d = order[tile]
            wanted = [
                sum(on_device[r]),
                sum(flat),
                flat[0] + flat[3] if 2 * r + d in (0, 3) else flat[1] + flat[2],
                on_device[0][d] + on_device[1][d],
                on_device[r][0],
                on_device[r][1 - d],
            ]
            np.testing.assert_array_equal(rows[tile, :, 0], wanted)


def test_devices_must_divide_among_replicas() -> None:
    module = spmd.parse(LOCAL.replace("HloModule m", "HloModule m, replica_count=2"))
    with pytest.raises(ShardingError, match="3 devices cannot hold 2 replicas"):
        partition_module(module, 3)
