"""Manual regions of the unpartitioned evaluation: Shardy's and GSPMD's form, whole and partly manual, nested, inlined."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.errors import ShardingError
from spmd.evaluator import evaluate
from spmd.text.parser import parse_module

MESHES = {
    "xy": '{mesh = #sdy.mesh<["x"=2, "y"=3]>}',
    "reversed": '{mesh = #sdy.mesh<["x"=2, "y"=3], device_ids=[5, 4, 3, 2, 1, 0]>}',
}
ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }"


def module(body, computations="", mesh="xy"):
    return parse_module(
        f"HloModule m, frontend_attributes={{xla.sdy.meshes={MESHES[mesh]}}}\n{ADD}\n{computations}\nENTRY e {{\n{body}\n}}"
    )


def call(name, operands, shape, kind, shardings, axes):
    """A boundary call; ``kind`` is in (GlobalToLocalShape) or out."""
    target, key = {
        "in": ("GlobalToLocalShape", "in_shardings"),
        "out": ("LocalToGlobalShape", "out_shardings"),
    }[kind]
    quoted = ", ".join(f'\\"{a}\\"' for a in axes)
    values = ", ".join(
        "<@mesh, [" + ", ".join("{" + d.replace("'", '\\"') + "}" for d in s) + "]>"
        for s in shardings
    )
    return (
        f'{name} = {shape} custom-call({operands}), custom_call_target="xla.sdy.{target}", custom_call_has_side_effect=true,'
        f' frontend_attributes={{xla.sdy.manual_axes="#sdy<manual_axes{{{quoted}}}>",'
        f'xla.sdy.{key}="#sdy.sharding_per_value<[{values}]>"}}'
    )


@pytest.mark.parametrize("mesh", MESHES)
def test_each_device_sees_its_slice(mesh):
    """Every device adds 100 x its own number to its [2, 2] slice of [4, 6]."""
    body = f"""g = f32[4,6] parameter(0)
      {call("l", "g", "f32[2,2]", "in", [["'x'", "'y'"]], ["x", "y"])}
      b = f32[2,2] call(l), to_apply=body
      ROOT {call("r", "b", "f32[4,6]", "out", [["'x'", "'y'"]], ["x", "y"])}"""
    computations = """body { v = f32[2,2] parameter(0) p = u32[] partition-id() f = f32[] convert(p) h = f32[] constant(100)
      m = f32[] multiply(f, h) w = f32[2,2] broadcast(m), dimensions={} ROOT a = f32[2,2] add(v, w) }"""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    want = x.copy()
    for i, j in np.ndindex(2, 3):
        device = 3 * i + j if mesh == "xy" else 5 - (3 * i + j)
        want[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += 100 * device
    np.testing.assert_array_equal(evaluate(module(body, computations, mesh), x)[0], want)


def test_two_axes_on_one_dimension_are_major_to_minor():
    body = f"""g = f32[12] parameter(0)
      {call("l", "g", "f32[2]", "in", [["'y', 'x'"]], ["x", "y"])}
      ROOT {call("r", "l", "f32[12]", "out", [["'x', 'y'"]], ["x", "y"])}"""
    x = np.arange(12, dtype=np.float32)
    # slice (y, x) of the input becomes slice (x, y) of the output
    want = x.reshape(3, 2, 2).transpose(1, 0, 2).reshape(12)
    np.testing.assert_array_equal(evaluate(module(body), x)[0], want)


def test_a_region_manual_over_one_axis_keeps_the_other_whole():
    """'y' divides the second dimension only for the partitioner; the body sees all of it."""
    body = f"""g = f32[4,6] parameter(0)
      {call("l", "g", "f32[2,6]", "in", [["'x'", "'y'"]], ["x"])}
      s = f32[2,6] all-reduce(l), channel_id=1, use_global_device_ids=true, replica_groups={{{{0,3}},{{1,4}},{{2,5}}}}, to_apply=add
      ROOT {call("r", "s", "f32[2,6]", "out", [["", ""]], ["x"])}"""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(evaluate(module(body), x)[0], x[:2] + x[2:])


def test_a_region_inside_a_region():
    """Outer over x, inner over y; the inner one sums over y, then over x from inside."""
    inner_in = call("l", "v", "f32[2,2]", "in", [["", "'y'"]], ["y"])
    inner_out = call("r", "t", "f32[2,2]", "out", [["", ""]], ["y"])
    computations = f"""outer {{ v = f32[2,6] parameter(0)
      {inner_in}
      s = f32[2,2] all-reduce(l), channel_id=1, use_global_device_ids=true, replica_groups={{{{0,1,2}},{{3,4,5}}}}, to_apply=add
      t = f32[2,2] all-reduce(s), channel_id=2, use_global_device_ids=true, replica_groups={{{{0,3}},{{1,4}},{{2,5}}}}, to_apply=add
      ROOT {inner_out} }}"""
    body = f"""g = f32[4,6] parameter(0)
      {call("a", "g", "f32[2,6]", "in", [["'x'", ""]], ["x"])}
      b = f32[2,2] call(a), to_apply=outer
      ROOT {call("c", "b", "f32[2,2]", "out", [["", ""]], ["x"])}"""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    want = x.reshape(2, 2, 3, 2).sum((0, 2))
    np.testing.assert_array_equal(evaluate(module(body, computations), x)[0], want)


def test_a_region_inlined_into_a_loop():
    """Three rounds of: slice, add the device's number, glue."""
    computations = f"""cond {{ s = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3)
        ROOT c = pred[] compare(i, n), direction=LT }}
      body {{ s = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(s), index=0 g = f32[6] get-tuple-element(s), index=1
        {call("l", "g", "f32[1]", "in", [["'x', 'y'"]], ["x", "y"])}
        p = u32[] partition-id() f = f32[] convert(p) w = f32[1] broadcast(f), dimensions={{}} a = f32[1] add(l, w)
        {call("r", "a", "f32[6]", "out", [["'x', 'y'"]], ["x", "y"])}
        one = s32[] constant(1) j = s32[] add(i, one) ROOT t = (s32[], f32[6]) tuple(j, r) }}"""
    body = """g = f32[6] parameter(0) z = s32[] constant(0) s = (s32[], f32[6]) tuple(z, g)
      w = (s32[], f32[6]) while(s), condition=cond, body=body ROOT r = f32[6] get-tuple-element(w), index=1"""
    got = evaluate(module(body, computations), np.zeros(6, np.float32))[0]
    np.testing.assert_array_equal(got, 3 * np.arange(6))


def test_a_loop_inside_a_region_with_a_trip_count_per_device():
    computations = """cond { s = (s32[], f32[1]) parameter(0) i = s32[] get-tuple-element(s), index=0 z = s32[] constant(0)
        ROOT c = pred[] compare(i, z), direction=GT }
      body { s = (s32[], f32[1]) parameter(0) i = s32[] get-tuple-element(s), index=0 v = f32[1] get-tuple-element(s), index=1
        one = s32[] constant(1) j = s32[] subtract(i, one) d = f32[1] add(v, v) ROOT t = (s32[], f32[1]) tuple(j, d) }"""
    body = f"""g = f32[6] parameter(0)
      {call("l", "g", "f32[1]", "in", [["'x', 'y'"]], ["x", "y"])}
      p = u32[] partition-id() n = s32[] convert(p) s = (s32[], f32[1]) tuple(n, l)
      w = (s32[], f32[1]) while(s), condition=cond, body=body v = f32[1] get-tuple-element(w), index=1
      ROOT {call("r", "v", "f32[6]", "out", [["'x', 'y'"]], ["x", "y"])}"""
    got = evaluate(module(body, computations), np.ones(6, np.float32))[0]
    np.testing.assert_array_equal(got, 2.0 ** np.arange(6))


def test_several_values_cross_the_boundary_together():
    body = f"""a = f32[6] parameter(0) b = f32[2] parameter(1)
      {call("l", "a, b", "(f32[2], f32[1])", "in", [["'y'"], ["'x'"]], ["x", "y"])}
      {call("r", "p, q", "(f32[6], f32[2])", "out", [["'y'"], ["'x'"]], ["x", "y"])}
      ROOT t = (f32[6], f32[2]) copy(r)"""
    body = body.replace(
        "      r = ",
        "      p = f32[2] get-tuple-element(l), index=0 q = f32[1] get-tuple-element(l), index=1\n      r = ",
    )
    x, y = np.arange(6, dtype=np.float32), np.array([7, 8], np.float32)
    got = evaluate(module(body), x, y)
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], y)


def test_uneven_slices_are_refused():
    body = f"""g = f32[5] parameter(0)
      {call("l", "g", "f32[2]", "in", [["'x'"]], ["x"])}
      ROOT {call("r", "l", "f32[4]", "out", [["'x'"]], ["x"])}"""
    with pytest.raises(ShardingError, match="divides a dimension of 5 into 2 equal parts"):
        evaluate(module(body), np.zeros(5, np.float32))


def test_an_unknown_mesh_is_named():
    body = f"""g = f32[4] parameter(0)
      {call("l", "g", "f32[2]", "in", [["'x'"]], ["x"])}
      ROOT {call("r", "l", "f32[4]", "out", [["'x'"]], ["x"])}""".replace("@mesh", "@other")
    with pytest.raises(ShardingError, match="no mesh @other"):
        evaluate(module(body), np.zeros(4, np.float32))


def gspmd(body, computations=""):
    return parse_module(f"HloModule m\n{ADD}\n{computations}\nENTRY e {{\n{body}\n}}")


def test_gspmd_form():
    body = """g = f32[4,6] parameter(0)
      s = f32[4,6] custom-call(g), custom_call_target="Sharding", sharding={devices=[2,3]<=[3,2]T(1,0)}
      l = f32[2,2] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}
      p = u32[] partition-id() f = f32[] convert(p) w = f32[2,2] broadcast(f), dimensions={} a = f32[2,2] add(l, w)
      m = f32[2,2] custom-call(a), custom_call_target="Sharding", sharding={manual}
      ROOT r = f32[4,6] custom-call(m), custom_call_target="SPMDShardToFullShape", sharding={devices=[2,3]<=[3,2]T(1,0)}"""
    x = np.zeros((4, 6), np.float32)
    want = np.kron(np.arange(6).reshape(3, 2).T, np.ones((2, 2)))
    np.testing.assert_array_equal(evaluate(gspmd(body), x)[0], want)


def test_gspmd_form_with_replicated_output():
    body = """g = f32[4] parameter(0)
      s = f32[4] custom-call(g), custom_call_target="Sharding", sharding={devices=[2,2]<=[4] last_tile_dim_replicate}
      l = f32[2] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}
      a = f32[2] all-reduce(l), channel_id=1, use_global_device_ids=true, replica_groups={{0,2},{1,3}}, to_apply=add
      ROOT r = f32[2] custom-call(a), custom_call_target="SPMDShardToFullShape", sharding={replicated}"""
    got = evaluate(gspmd(body), np.array([1, 2, 3, 4], np.float32))[0]
    assert got.tolist() == [4, 6]


def test_gspmd_form_partly_manual_slices_by_the_major_part():
    """The first dimension is divided by 2 (manual), then by 2 again (left to the partitioner)."""
    body = """g = f32[8] parameter(0)
      s = f32[8] custom-call(g), custom_call_target="Sharding", sharding={devices=[4]<=[4]}
      l = f32[4] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dims={manual}}
      n = f32[4] reverse(l), dimensions={0}
      m = f32[4] custom-call(n), custom_call_target="Sharding", sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dims={manual}}
      ROOT r = f32[8] custom-call(m), custom_call_target="SPMDShardToFullShape", sharding={devices=[4]<=[4]}"""
    got = evaluate(gspmd(body), np.arange(8, dtype=np.float32))[0]
    assert got.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]


def test_gspmd_form_where_only_collectives_name_the_devices():
    body = """g = f32[2] parameter(0)
      l = f32[2] custom-call(g), custom_call_target="SPMDFullToShardShape", sharding={manual}
      a = f32[2] all-reduce(l), channel_id=1, use_global_device_ids=true, replica_groups={{0,1,2}}, to_apply=add
      ROOT r = f32[2] custom-call(a), custom_call_target="SPMDShardToFullShape", sharding={replicated}"""
    assert evaluate(gspmd(body), np.array([1, 2], np.float32))[0].tolist() == [3, 6]


@pytest.mark.parametrize("groups", ["{{0},{1},{2},{3},{4},{5}}", "[6,1]<=[6]"])
def test_groups_of_one_device_are_no_region(groups):
    """A region over axes of size one has no boundary calls; its collectives are in the unpartitioned program."""
    body = f"""x = f32[4] parameter(0)
      g = f32[4] all-gather(x), channel_id=1, replica_groups={groups}, dimensions={{0}}, use_global_device_ids=true
      ROOT s = f32[4] all-reduce(g), channel_id=2, replica_groups={groups}, use_global_device_ids=true, to_apply=add"""
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(module(body), x)[0], x)
