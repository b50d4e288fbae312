"""A step whose parameters are sharded over twice as many devices: each device has half of them, and their values stay."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulation.dimension_classes import DimensionClasses
from benchmarks.simulation.more_shards import with_more_shards
from collectives.simulate.data_parallel import with_more_replicas
from spmd.errors import UnsupportedError
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloModule, Opcode
from spmd.ops.groups import device_groups
from spmd.text.parser import parse_module
from spmd.verifier.verifier import verify

#: Two replicas of two devices. Two layers with weights of 12 x 12, of which each device has 6 rows, and their gradient.
PROGRAM = """HloModule step, num_partitions=4

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

body { p = (s32[], f32[5,12], f32[2,6,12]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[5,12] get-tuple-element(p), index=1
  w = f32[2,6,12] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  layer = f32[1,6,12] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,6,12}
  rows = f32[6,12] reshape(layer)
  all = f32[12,12] all-gather(rows), channel_id=1, replica_groups=[2,2]<=[4], dimensions={0}, use_global_device_ids=true
  y = f32[5,12] dot(x, all), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (s32[], f32[5,12], f32[2,6,12]) tuple(next, y, w) }

cond { p = (s32[], f32[5,12], f32[2,6,12]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2)
  ROOT l = pred[] compare(i, n), direction=LT }

ENTRY e {
  x = f32[5,12] parameter(0)
  w = f32[6,2,12] parameter(1)
  layers = f32[2,6,12] transpose(w), dimensions={1,0,2}
  zero = s32[] constant(0)
  start = (s32[], f32[5,12], f32[2,6,12]) tuple(zero, x, layers)
  end = (s32[], f32[5,12], f32[2,6,12]) while(start), condition=cond, body=body
  y = f32[5,12] get-tuple-element(end), index=1
  g = f32[12,12] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  sum = f32[12,12] all-reduce(g), channel_id=2, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=add
  position = u32[4] constant({0, 1, 0, 1})
  offset = s32[2] constant({0, 6})
  id = u32[] partition-id()
  p1 = u32[1] dynamic-slice(position, id), dynamic_slice_sizes={1}
  p0 = u32[] reshape(p1)
  o1 = s32[1] dynamic-slice(offset, p0), dynamic_slice_sizes={1}
  o0 = s32[] reshape(o1)
  part = f32[6,12] dynamic-slice(sum, o0, zero), dynamic_slice_sizes={6,12}
  total = f32[6,12] all-reduce(part), channel_id=3, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, to_apply=add
  both = f32[6,2,12] broadcast(total), dimensions={0,2}
  new = f32[6,2,12] subtract(w, both)
  square = f32[6,2,12] multiply(new, new)
  none = f32[] constant(0)
  norm = f32[] reduce(square, none), dimensions={0,1,2}, to_apply=add
  norms = f32[] all-reduce(norm), channel_id=4, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=add
  ROOT t = (f32[6,2,12], f32[], f32[5,12]) tuple(new, norms, y)
}"""


def _values(module: HloModule, replicas: int) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Return the parameters after the step, [12,2,12], and the other results of each device."""
    rng = np.random.default_rng(7)
    devices = module.num_partitions
    shards = devices // replicas
    weights = rng.normal(size=(12, 2, 12)).astype(np.float32)
    parts = np.split(weights, shards)
    inputs = [
        [rng.normal(size=(5, 12)).astype(np.float32), parts[device % shards]]
        for device in range(devices)
    ]
    results = [list(values) for values in evaluate_partitions(module, inputs)]
    for replica in range(1, replicas):
        for shard in range(shards):
            np.testing.assert_array_equal(results[replica * shards + shard][0], results[shard][0])
    return np.concatenate([one[0] for one in results[:shards]]), [one[1:] for one in results]


@pytest.mark.parametrize("copies", [1, 3])
def test_values_stay(copies: int) -> None:
    module = parse_module(PROGRAM)
    if copies > 1:
        module = with_more_replicas(module, copies)
    sharded = with_more_shards(module, 2)
    verify(sharded)
    assert sharded.entry.parameters[1].dims == (3, 2, 12)
    expected, others = _values(module, 2 * copies)
    found, same = _values(sharded, copies)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(same, others, strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4)


def test_groups_are_larger_and_sums_over_replicas_smaller() -> None:
    module = with_more_shards(with_more_replicas(parse_module(PROGRAM), 2), 2)
    reduces = [
        device_groups(x, module.num_partitions, 1)
        for x in module.entry.with_opcode(Opcode.ALL_REDUCE)
    ]
    within, across = ((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 4), (1, 5), (2, 6), (3, 7))
    assert reduces == [within, across, within]
    alone = with_more_shards(parse_module(PROGRAM), 2)
    assert len(list(alone.entry.with_opcode(Opcode.ALL_REDUCE))) == 2


def test_what_has_no_smaller_parts_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="replicas"):
        with_more_shards(parse_module(PROGRAM), 3)
    odd = (
        PROGRAM.replace("6,", "5,")
        .replace("12]", "10]")
        .replace("[12,", "[10,")
        .replace("{0, 6}", "{0, 5}")
    )
    with pytest.raises(UnsupportedError, match="no multiple"):
        with_more_shards(parse_module(odd), 2)
    elsewhere = PROGRAM.replace("constant({0, 1, 0, 1})", "constant({1, 0, 1, 0})")
    with pytest.raises(UnsupportedError, match="part"):
        with_more_shards(parse_module(elsewhere), 2)
    sorted_rows = PROGRAM.replace(
        "both = f32[6,2,12] broadcast(total)",
        "twice = f32[6,12] reverse(total), dimensions={0}\n  both = f32[6,2,12] broadcast(twice)",
    )
    with pytest.raises(UnsupportedError, match="no rule"):
        with_more_shards(parse_module(sorted_rows), 2)


def test_classes_go_through_loops_and_end_at_gathers() -> None:
    module = parse_module(PROGRAM)
    classes = DimensionClasses(module)
    weights = module.entry.parameters[1]
    (gather,) = (x for x in module.all_instructions() if x.opcode is Opcode.ALL_GATHER)
    of_weights = classes.representative((weights, (), 0))
    assert classes.representative((gather.operand(0), (), 0)) == of_weights
    assert classes.representative((gather, (), 0)) != of_weights
    assert classes.representative((weights, (), 1)) != of_weights
    assert not classes.unknown
