"""Collectives in lock step: every kind and group mode against its definition over plain lists, and groups that never meet."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.errors import CollectiveTimeoutError, ShapeError

HEADER = ", num_partitions={p}, replica_count={r}"


def inputs(n, shape=(4, 2)):
    """Device d holds 100 d + 0, 1, 2, .."""
    size = int(np.prod(shape))
    return [np.arange(size, dtype=np.float32).reshape(shape) + 100 * d for d in range(n)]


def header(partitions, replicas=1):
    return HEADER.format(p=partitions, r=replicas)


# 2 replicas x 4 partitions; ids in the attribute, the groups of devices they mean
MODES = {
    "cross_replica": ("replica_groups={{0,1}}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
    "cross_replica_singles": ("replica_groups={{0},{1}}", [[d] for d in range(8)]),
    "both": ("channel_id=1, replica_groups={{1,0}}", [[4, 5, 6, 7, 0, 1, 2, 3]]),
    "both_split": ("channel_id=1, replica_groups={{0},{1}}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "flattened": ("channel_id=1, use_global_device_ids=true, replica_groups={{0,5},{1,4},{7,2},{3,6}}", [[0, 5], [1, 4], [7, 2], [3, 6]]),
    "iota": ("channel_id=1, use_global_device_ids=true, replica_groups=[2,4]<=[4,2]T(1,0)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    "mesh": ("channel_id=1, use_global_device_ids=true, replica_groups=mesh['a'=2,'b'=4] {'b'}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "all": ("channel_id=1, use_global_device_ids=true, replica_groups={}", [list(range(8))]),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_all_reduce_in_every_group_mode(run_devices, mode):
    attributes, groups = MODES[mode]
    xs = inputs(8)
    body = f"x = f32[4,2] parameter(0) ROOT r = f32[4,2] all-reduce(x), {attributes}, to_apply=add"
    got = run_devices(body, [[x] for x in xs], header=header(4, 2))
    for group in groups:
        for device in group:
            np.testing.assert_array_equal(got[device][0], sum(xs[d] for d in group))


def test_order_of_members_is_the_order_of_the_group(run_devices):
    """x - y is not associative: members combine as ((7 - 2) - ..)."""
    xs = inputs(4)
    body = """x = f32[4,2] parameter(0)
      ROOT r = f32[4,2] all-reduce(x), channel_id=1, use_global_device_ids=true, replica_groups={{3,1,0,2}}, to_apply=minus"""
    got = run_devices(body, [[x] for x in xs], header=header(4))
    for device in range(4):
        np.testing.assert_array_equal(got[device][0], xs[3] - xs[1] - xs[0] - xs[2])


@pytest.mark.parametrize("start", [False, True])
def test_variadic_all_reduce_and_its_start(run_devices, start):
    xs = inputs(2)
    suffix = "-start" if start else ""
    done = "d = (f32[4,2], f32[]) all-reduce-done(r)" if start else "d = (f32[4,2], f32[]) copy(r)"
    body = f"""x = f32[4,2] parameter(0) c = f32[] constant(2)
      r = (f32[4,2], f32[]) all-reduce{suffix}(x, c), channel_id=1, replica_groups={{{{0}}}}, to_apply=add
      {done} a = f32[4,2] get-tuple-element(d), index=0 b = f32[] get-tuple-element(d), index=1
      ROOT t = (f32[4,2], f32[]) tuple(a, b)"""
    got = run_devices(body, [[x] for x in xs], header=header(2))
    for device in range(2):
        np.testing.assert_array_equal(got[device][0], xs[0] + xs[1])
        assert float(got[device][1]) == 4


def test_all_gather_in_group_order(run_devices):
    xs = inputs(4)
    body = """x = f32[4,2] parameter(0)
      ROOT r = f32[4,4] all-gather(x), channel_id=1, use_global_device_ids=true, replica_groups={{2,0},{1,3}}, dimensions={1}"""
    got = run_devices(body, [[x] for x in xs], header=header(4))
    for group in ([2, 0], [1, 3]):
        for device in group:
            np.testing.assert_array_equal(
                got[device][0], np.concatenate([xs[d] for d in group], axis=1)
            )


def test_all_gather_start_and_done(run_devices):
    xs = inputs(2)
    body = """x = f32[4,2] parameter(0)
      s = (f32[4,2], f32[8,2]) all-gather-start(x), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, dimensions={0}
      ROOT r = f32[8,2] all-gather-done(s)"""
    got = run_devices(body, [[x] for x in xs], header=header(2))
    np.testing.assert_array_equal(got[1][0], np.concatenate(xs))


def test_reduce_scatter_gives_each_member_its_part(run_devices):
    xs = inputs(4)
    body = """x = f32[4,2] parameter(0)
      ROOT r = f32[2,2] reduce-scatter(x), channel_id=1, use_global_device_ids=true, replica_groups={{3,0},{1,2}}, dimensions={0}, to_apply=add"""
    got = run_devices(body, [[x] for x in xs], header=header(4))
    for group in ([3, 0], [1, 2]):
        total = sum(xs[d] for d in group)
        for place, device in enumerate(group):
            np.testing.assert_array_equal(got[device][0], total[2 * place : 2 * place + 2])


def test_all_to_all_of_arrays(run_devices):
    xs = inputs(4)
    body = """x = f32[4,2] parameter(0)
      ROOT r = f32[4,2] all-to-all(x), channel_id=1, replica_groups={{1,0},{2,3}}, dimensions={0}"""
    got = run_devices(body, [[x] for x in xs], header=header(4))
    for group in ([1, 0], [2, 3]):
        for place, device in enumerate(group):
            want = np.concatenate([xs[d][2 * place : 2 * place + 2] for d in group])
            np.testing.assert_array_equal(got[device][0], want)


def test_all_to_all_of_tuples(run_devices):
    body = """a = f32[2] parameter(0) b = f32[2] parameter(1)
      ROOT r = (f32[2], f32[2]) all-to-all(a, b), channel_id=1, replica_groups={{0,1}}"""
    sent = [[np.full(2, 10 * d + k, np.float32) for k in range(2)] for d in range(2)]
    got = run_devices(body, sent, header=header(2))
    assert [[int(v[0]) for v in device] for device in got] == [[0, 10], [1, 11]]


def test_ragged_all_to_all(run_devices):
    """The example of XLA's operation semantics: each row moves, the rest of the output stays."""
    body = """x = f32[4] parameter(0) o = f32[5] constant({-1, -1, -1, -1, -1}) a = s32[2] parameter(1) b = s32[2] parameter(2)
      c = s32[2] parameter(3) d = s32[2] parameter(4)
      ROOT r = f32[5] ragged-all-to-all(x, o, a, b, c, d), channel_id=1, replica_groups={{0,1}}"""
    i32 = [np.array(v, np.int32) for v in ([0, 1], [1, 2], [0, 0], [1, 3])]
    j32 = [np.array(v, np.int32) for v in ([0, 3], [3, 1], [1, 2], [2, 1])]
    xs = [np.array([1, 2, 3, 0], np.float32), np.array([4, 5, 6, 7], np.float32)]
    got = run_devices(body, [[xs[0], *i32], [xs[1], *j32]], header=header(2))
    assert got[0][0].tolist() == [1, 4, 5, 6, -1]
    assert got[1][0].tolist() == [2, 3, 7, -1, -1]


def test_collective_permute_and_zeros_for_those_who_get_nothing(run_devices):
    xs = inputs(4)
    body = """x = f32[4,2] parameter(0)
      ROOT r = f32[4,2] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2},{3,3}}"""
    got = run_devices(body, [[x] for x in xs], header=header(4))
    for device, want in enumerate((np.zeros((4, 2)), xs[0], xs[1], xs[3])):
        np.testing.assert_array_equal(got[device][0], want)


def test_collective_permute_between_replicas(run_devices):
    xs = inputs(4)
    body = "x = f32[4,2] parameter(0) ROOT r = f32[4,2] collective-permute(x), source_target_pairs={{0,1},{1,0}}"
    got = run_devices(body, [[x] for x in xs], header=header(2, 2))
    for device, source in enumerate((2, 3, 0, 1)):
        np.testing.assert_array_equal(got[device][0], xs[source])


def test_collective_permute_start_and_done(run_devices):
    xs = inputs(2)
    body = """x = f32[4,2] parameter(0)
      s = (f32[4,2], f32[4,2], u32[], u32[]) collective-permute-start(x), channel_id=1, source_target_pairs={{0,1},{1,0}}
      ROOT r = f32[4,2] collective-permute-done(s)"""
    got = run_devices(body, [[x] for x in xs], header=header(2))
    np.testing.assert_array_equal(got[0][0], xs[1])


def test_collective_broadcast(run_devices):
    xs = inputs(4)
    body = """x = f32[4,2] parameter(0)
      ROOT r = f32[4,2] collective-broadcast(x), channel_id=1, replica_groups={{2,0,1}}"""
    got = run_devices(body, [[x] for x in xs], header=header(4))
    for device, want in enumerate((xs[2], xs[2], xs[2], np.zeros((4, 2)))):
        np.testing.assert_array_equal(got[device][0], want)


def test_devices_know_themselves(run_devices):
    body = "p = u32[] partition-id() r = u32[] replica-id() ROOT t = (u32[], u32[]) tuple(p, r)"
    got = run_devices(body, [[]] * 6, header=header(3, 2))
    assert [tuple(int(v) for v in device) for device in got] == [
        (p, r) for r in range(2) for p in range(3)
    ]


def test_partitions_come_from_the_inputs_where_the_module_names_none(run_devices):
    body = "x = f32[] parameter(0) ROOT r = f32[] all-reduce(x), channel_id=1, use_global_device_ids=true, replica_groups={}, to_apply=add"
    got = run_devices(body, [[np.float32(d)] for d in range(5)])
    assert [float(g[0]) for g in got] == [10] * 5
    with pytest.raises(ShapeError, match="1 replicas x 4 partitions, found inputs for 5 devices"):
        run_devices(body, [[np.float32(d)] for d in range(5)], header=header(4))


LOOP = """
cond { s = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(s), index=0 z = s32[] constant(0)
  ROOT c = pred[] compare(i, z), direction=GT }
body { s = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(s), index=0 v = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1) j = s32[] subtract(i, one)
  w = f32[] all-reduce(v), channel_id=1, use_global_device_ids=true, replica_groups={{0,1},{2,3}}, to_apply=add
  ROOT t = (s32[], f32[]) tuple(j, w) }
"""
LOOP_ENTRY = """n = s32[] parameter(0) x = f32[] parameter(1) s = (s32[], f32[]) tuple(n, x)
  w = (s32[], f32[]) while(s), condition=cond, body=body ROOT r = f32[] get-tuple-element(w), index=1"""


def test_groups_may_loop_at_their_own_pace(run_devices):
    """Devices 0 and 1 make one trip, 2 and 3 make five."""
    per_device = [[np.int32(1 if d < 2 else 5), np.float32(1)] for d in range(4)]
    got = run_devices(LOOP_ENTRY, per_device, header=header(4), before=LOOP)
    assert [float(g[0]) for g in got] == [2, 2, 32, 32]


def test_a_group_that_never_meets_is_named(run_devices):
    per_device = [[np.int32(2 if d == 0 else 1), np.float32(1)] for d in range(4)]
    with pytest.raises(CollectiveTimeoutError) as error:
        run_devices(LOOP_ENTRY, per_device, header=header(4), before=LOOP)
    assert "device 0 waits at w (all-reduce) for devices 1" in str(error.value)
    assert "done: 1, 2, 3" in str(error.value)


def test_two_collectives_in_opposite_orders_never_meet(run_devices):
    before = """
    f { x = f32[] parameter(0)
      a = f32[] all-reduce(x), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add
      ROOT b = f32[] all-reduce(a), channel_id=2, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=max }
    g { x = f32[] parameter(0)
      c = f32[] all-reduce(x), channel_id=2, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=max
      ROOT d = f32[] all-reduce(c), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add }"""
    body = """p = s32[] parameter(0) x = f32[] constant(1)
      ROOT r = f32[] conditional(p, x, x), branch_computations={f, g}"""
    with pytest.raises(CollectiveTimeoutError, match="device 1 waits at c"):
        run_devices(body, [[np.int32(0)], [np.int32(1)]], header=header(2), before=before)


def test_a_collective_inside_an_asynchronous_wrapper(run_devices):
    xs = inputs(2)
    body = """x = f32[4,2] parameter(0)
      s = ((f32[4,2]), f32[2,2]) reduce-scatter-start(x), channel_id=1, use_global_device_ids=true, replica_groups={{1,0}},
        dimensions={0}, to_apply=add
      ROOT r = f32[2,2] reduce-scatter-done(s)"""
    got = run_devices(body, [[x] for x in xs], header=header(2))
    total = xs[0] + xs[1]
    np.testing.assert_array_equal(got[1][0], total[:2])
    np.testing.assert_array_equal(got[0][0], total[2:])
