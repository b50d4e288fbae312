"""What replication analysis says is equal is equal: on random programs of several devices, every value is compared."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from collectives.passes.replication import Replication
from spmd.builder import Builder
from spmd.device_groups import DeviceGroups
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloInstruction, HloModule
from spmd.shape import ArrayShape
from spmd.text.parser import parse_module
from tests.differential.tiling import same_bits
from tests.spmd.passes.triggers.check import random_inputs
from tests.spmd.passes.triggers.registry import trigger_of

PROGRAMS = (
    "all-reduce-simplifier",
    "all-reduce-combiner",
    "all-reduce-folder",
    "reduce-scatter-combiner",
)


def arrays_of(module: HloModule) -> list[HloInstruction]:
    return [x for x in module.entry.instructions if isinstance(x.shape, ArrayShape)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_said_to_be_equal_are(name: str) -> None:
    trigger = trigger_of(name)
    assert trigger is not None
    claims = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        module = trigger.modules(rng)
        replication = Replication(module)
        arrays = arrays_of(module)
        said = {
            (i, pair)
            for i, x in enumerate(arrays)
            for pair in combinations(range(module.num_partitions * module.replica_count), 2)
            if replication.is_equal_within(x, DeviceGroups.of([pair]))
        }
        module.entry.root = Builder(module.entry).tuple(arrays)
        found = evaluate_partitions(module, random_inputs(module, rng, edges=True))
        for i, (one, other) in said:
            assert same_bits(found[one][i], found[other][i]), f"seed {seed}: {arrays[i]!r}"
        claims += len(said)
    assert claims > 100


PROGRAM = """
HloModule replication, num_partitions=4

add {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}

number_added {
  n = f32[] parameter(0)
  number = u32[] partition-id()
  n.1 = f32[] convert(number)
  ROOT n.2 = f32[] add(n, n.1)
}

add_and_number {
  p.1 = f32[] parameter(0)
  q.1 = f32[] parameter(1)
  s.1 = f32[] add(p.1, q.1)
  ROOT s.2 = f32[] call(s.1), to_apply=number_added
}

body {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  kept = f32[4] get-tuple-element(state), index=1
  mixed = f32[4] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  both = f32[4] add(kept, mixed)
  ROOT t = (s32[], f32[4], f32[4]) tuple(next, kept, both)
}

condition {
  st = (s32[], f32[4], f32[4]) parameter(0)
  j = s32[] get-tuple-element(st), index=0
  end = s32[] constant(3)
  ROOT less = pred[] compare(j, end), direction=LT
}

ENTRY main {
  mine = f32[4] parameter(0)
  all = f32[4] parameter(1), sharding={replicated}
  pairs = f32[4] parameter(2), sharding={devices=[2,2]<=[4] last_tile_dim_replicate}
  id = u32[] partition-id()
  two = u32[] constant(2)
  half = u32[] divide(id, two)
  sum = f32[4] all-reduce(mine), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  sums = f32[4] all-reduce(all), channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  sent = f32[4] collective-permute(pairs), channel_id=3, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  drawn = f32[4] custom-call(all), custom_call_target="draw"
  nothing = f32[] constant(0)
  numbered = f32[] reduce(all, nothing), dimensions={0}, to_apply=add_and_number
  zero = s32[] constant(0)
  init = (s32[], f32[4], f32[4]) tuple(zero, all, pairs)
  loop = (s32[], f32[4], f32[4]) while(init), condition=condition, body=body
  kept_on = f32[4] get-tuple-element(loop), index=1
  changed = f32[4] get-tuple-element(loop), index=2
  ROOT r = (f32[4], f32[4], f32[4], f32[4], f32[4], f32[4], u32[], f32[]) tuple(sum, sums, sent, drawn, kept_on, changed, half, numbered)
}
"""


@pytest.mark.parametrize(
    ("value", "groups"),
    [
        ("mine", ((0,), (1,), (2,), (3,))),
        ("all", ((0, 1, 2, 3),)),
        ("pairs", ((0, 1), (2, 3))),
        ("half", ((0, 1), (2, 3))),
        ("sum", ((0, 1), (2, 3))),
        ("sums", ((0, 1, 2, 3),)),
        ("sent", ((0, 3), (1, 2))),
        ("drawn", ((0,), (1,), (2,), (3,))),
        ("numbered", ((0,), (1,), (2,), (3,))),
        ("kept_on", ((0, 1, 2, 3),)),
        ("changed", ((0, 1), (2, 3))),
    ],
)
def test_which_devices_have_equal_values(value: str, groups: tuple[tuple[int, ...], ...]) -> None:
    """Exactly within these groups."""
    module = parse_module(PROGRAM)
    (x,) = (x for x in module.entry.instructions if x.name == value)
    replication = Replication(module)
    together = {pair for group in groups for pair in combinations(group, 2)}
    for pair in combinations(range(4), 2):
        assert replication.is_equal_within(x, DeviceGroups.of([pair])) == (pair in together)


@pytest.mark.parametrize("number", ["constant(1)", "partition-id()"])
def test_computations_that_call_others_twice_are_looked_at_once(number: str) -> None:
    """Called, and by a reducer, 2^40 times."""
    text = f"""HloModule doubling, num_partitions=2
    level0 {{ p = f32[] parameter(0)
      number = u32[] {number}
      n = f32[] convert(number)
      ROOT r = f32[] add(p, n) }}
    """
    for level in range(1, 41):
        text += f"""level{level} {{ p = f32[] parameter(0)
          a = f32[] call(p), to_apply=level{level - 1}
          ROOT b = f32[] call(a), to_apply=level{level - 1} }}
        """
    text += """add { p = f32[] parameter(0)
      q = f32[] parameter(1)
      s = f32[] add(p, q)
      ROOT c = f32[] call(s), to_apply=level40 }
    ENTRY main { x = f32[4] parameter(0), sharding={replicated}
      zero = f32[] constant(0)
      called = f32[] call(zero), to_apply=level40
      ROOT reduced = f32[] reduce(x, called), dimensions={0}, to_apply=add }
    """
    module = parse_module(text)
    replication, both = Replication(module), DeviceGroups.of([(0, 1)])
    reduced, called = module.entry.root, module.entry.root.operand(1)
    is_alike = number == "constant(1)"
    assert replication.is_equal_within(reduced, both) is is_alike
    assert replication.is_equal_within(called, both) is is_alike
