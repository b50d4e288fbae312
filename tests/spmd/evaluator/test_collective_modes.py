"""Every collective in every group mode, on 2 replicas x 4 partitions, against its definition over plain lists.

A device is replica * 4 + partition. For each mode: what stands in the attributes, and the groups of devices it means.
"""

from __future__ import annotations

import numpy as np
import pytest

HEADER = ", num_partitions=4, replica_count=2"

REDUCING = {
    "cross_replica": ("replica_groups={{1,0}}", [[4, 0], [5, 1], [6, 2], [7, 3]]),
    "cross_replica_and_partition": (
        "channel_id=1, replica_groups={{1,0}}",
        [[4, 5, 6, 7, 0, 1, 2, 3]],
    ),
    "replicas apart": ("channel_id=1, replica_groups={{0},{1}}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "flattened_id": (
        "channel_id=1, use_global_device_ids=true, replica_groups={{0,5},{4,1},{7,2},{3,6}}",
        [[0, 5], [4, 1], [7, 2], [3, 6]],
    ),
}
EXCHANGING = {
    "cross_replica": REDUCING["cross_replica"],
    "cross_partition": (
        "channel_id=1, replica_groups={{2,0},{1,3}}",
        [[2, 0], [1, 3], [6, 4], [5, 7]],
    ),
}


def inputs(length=16):
    return [np.arange(length, dtype=np.float32) + 100 * d for d in range(8)]


def run(run_devices, line):
    body = f"x = f32[16] parameter(0)\n{line}"
    return [out[0] for out in run_devices(body, [[x] for x in inputs()], header=HEADER)]


@pytest.mark.parametrize("mode", REDUCING)
@pytest.mark.parametrize("start", ["", "-start"])
def test_all_reduce(run_devices, mode, start):
    attributes, groups = REDUCING[mode]
    line = f"ROOT r = f32[16] all-reduce(x), {attributes}, to_apply=add"
    if start:
        line = f"s = f32[16] all-reduce-start(x), {attributes}, to_apply=add\nROOT r = f32[16] all-reduce-done(s)"
    got = run(run_devices, line)
    xs = inputs()
    for group in groups:
        for device in group:
            np.testing.assert_array_equal(got[device], sum(xs[d] for d in group))


@pytest.mark.parametrize("mode", REDUCING)
@pytest.mark.parametrize("start", ["", "-start"])
def test_all_gather(run_devices, mode, start):
    attributes, groups = REDUCING[mode]
    size = 16 * len(groups[0])
    line = f"ROOT r = f32[{size}] all-gather(x), {attributes}, dimensions={{0}}"
    if start:
        line = (
            f"s = (f32[16], f32[{size}]) all-gather-start(x), {attributes}, dimensions={{0}}\n"
            f"ROOT r = f32[{size}] all-gather-done(s)"
        )
    got = run(run_devices, line)
    xs = inputs()
    for group in groups:
        for device in group:
            np.testing.assert_array_equal(got[device], np.concatenate([xs[d] for d in group]))


@pytest.mark.parametrize("mode", REDUCING)
def test_reduce_scatter(run_devices, mode):
    attributes, groups = REDUCING[mode]
    part = 16 // len(groups[0])
    got = run(
        run_devices,
        f"ROOT r = f32[{part}] reduce-scatter(x), {attributes}, dimensions={{0}}, to_apply=add",
    )
    xs = inputs()
    for group in groups:
        total = sum(xs[d] for d in group)
        for i, device in enumerate(group):
            np.testing.assert_array_equal(got[device], total[i * part : (i + 1) * part])


@pytest.mark.parametrize("mode", EXCHANGING)
def test_all_to_all(run_devices, mode):
    attributes, groups = EXCHANGING[mode]
    got = run(run_devices, f"ROOT r = f32[16] all-to-all(x), {attributes}, dimensions={{0}}")
    xs = inputs()
    for group in groups:
        for i, device in enumerate(group):
            np.testing.assert_array_equal(
                got[device], np.concatenate([xs[d][i * 8 : i * 8 + 8] for d in group])
            )


@pytest.mark.parametrize("mode", EXCHANGING)
def test_collective_broadcast(run_devices, mode):
    attributes, groups = EXCHANGING[mode]
    got = run(run_devices, f"ROOT r = f32[16] collective-broadcast(x), {attributes}")
    for group in groups:
        for device in group:
            np.testing.assert_array_equal(got[device], inputs()[group[0]])


@pytest.mark.parametrize("mode", EXCHANGING)
def test_ragged_all_to_all(run_devices, mode):
    """Everyone sends its first element to the group's first member and its next two to the second."""
    attributes, groups = EXCHANGING[mode]
    line = f"""o = f32[16] broadcast(f32[] constant(-1)), dimensions={{}}
      from = s32[2] constant({{0,1}})
      count = s32[2] constant({{1,2}})
      to = s32[2] parameter(1)
      given = s32[2] parameter(2)
      ROOT r = f32[16] ragged-all-to-all(x, o, from, count, to, given), {attributes}"""
    rank = {device: i for group in groups for i, device in enumerate(group)}
    per_device = []
    for device, x in enumerate(inputs()):
        place = np.full(2, 4 * rank[device], np.int32)
        per_device.append([x, place, np.full(2, 1 + rank[device], np.int32)])
    got = run_devices(f"x = f32[16] parameter(0)\n{line}", per_device, header=HEADER)
    xs = inputs()
    for group in groups:
        for i, device in enumerate(group):
            want = np.full(16, -1, np.float32)
            for j, source in enumerate(group):
                sent = xs[source][:1] if i == 0 else xs[source][1:3]
                want[4 * j : 4 * j + len(sent)] = sent
            np.testing.assert_array_equal(got[device][0], want)


PERMUTING = {
    "cross_replica": ("source_target_pairs={{0,1}}", {4 + p: p for p in range(4)}),
    "cross_partition": (
        "channel_id=1, source_target_pairs={{0,1},{1,2},{3,3}}",
        {1: 0, 2: 1, 3: 3, 5: 4, 6: 5, 7: 7},
    ),
}


@pytest.mark.parametrize("mode", PERMUTING)
@pytest.mark.parametrize("start", ["", "-start"])
def test_collective_permute(run_devices, mode, start):
    attributes, source_of = PERMUTING[mode]
    line = f"ROOT r = f32[16] collective-permute(x), {attributes}"
    if start:
        line = (
            f"s = (f32[16], f32[16], u32[], u32[]) collective-permute-start(x), {attributes}\n"
            "ROOT r = f32[16] collective-permute-done(s)"
        )
    got = run(run_devices, line)
    for device in range(8):
        want = inputs()[source_of[device]] if device in source_of else np.zeros(16, np.float32)
        np.testing.assert_array_equal(got[device], want)


@pytest.mark.parametrize("mode", PERMUTING)
def test_collective_permute_into_a_buffer(run_devices, mode):
    """Elements 2..4 of the source go to 9..11 of the target's buffer; who gets nothing keeps its buffer."""
    attributes, source_of = PERMUTING[mode]
    line = f"""b = f32[16] negate(x)
      two = s32[] constant(2)
      nine = s32[] constant(9)
      from = (s32[]) tuple(two)
      to = (s32[]) tuple(nine)
      ROOT r = f32[16] collective-permute(x, b, from, to), {attributes}, slice_sizes={{{{3}}}}"""
    got = run(run_devices, line)
    for device in range(8):
        want = -inputs()[device]
        if device in source_of:
            want[9:12] = inputs()[source_of[device]][2:5]
        np.testing.assert_array_equal(got[device], want)
