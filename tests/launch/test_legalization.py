"""Tests of operations that run in another form, since the runtime has none of its own for them.

They are random draws, scans, sizes known when run, and starts as vectors.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import spmd
from launch.options import CompileOptions
from spmd.errors import ShardingError
from spmd.hlo import Opcode
from spmd.text.parser import parse_module

#: A walk of five random steps in a loop, and a draw after it.
DRAWS = """HloModule draws
body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8] get-tuple-element(s), index=1
  low = f32[] constant(-1)
  high = f32[] constant(1)
  u = f32[8] rng(low, high), distribution=rng_uniform
  y = f32[8] add(x, u)
  ROOT t = (s32[], f32[8]) tuple(next, y)
}
more {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=more, body=body
  walked = f32[8] get-tuple-element(w), index=1
  mean = f32[] constant(0)
  sigma = f32[] constant(2)
  normal = f32[3,5] rng(mean, sigma), distribution=rng_normal
  ROOT r = (f32[8], f32[3,5]) tuple(walked, normal)
}
"""

#: Running sums of rows beside the last one.
SCAN = """HloModule sums
f {
  x = f32[6] parameter(0)
  carry = f32[6] parameter(1)
  sum = f32[6] add(x, carry)
  ROOT r = (f32[6], f32[6]) tuple(sum, sum)
}
ENTRY main {
  x = f32[8,6] parameter(0), sharding={devices=[1,2]<=[2]}
  start = f32[6] parameter(1)
  scan = (f32[8,6], f32[6]) scan(x, start), dimensions={0}, num_carries=1, to_apply=f
  sums = f32[8,6] get-tuple-element(scan), index=0
  last = f32[6] get-tuple-element(scan), index=1
  ROOT r = (f32[8,6], f32[6]) tuple(sums, last)
}
"""

#: Rows of which n columns count, across which they are divided among the devices.
SIZES = """HloModule sizes
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[4,6] parameter(0), sharding={devices=[1,2]<=[2]}
  word = f32[] parameter(1)
  four = s32[] constant(4)
  zero = s32[] constant(0)
  given = s32[] convert(word)
  n = s32[] clamp(zero, given, four)
  d = f32[4,<=6] set-dimension-size(x, n), dimensions={1}
  e = f32[4,<=6] exponential(d)
  none = f32[] constant(0)
  sums = f32[4] reduce(e, none), dimensions={1}, to_apply=sum
  products = f32[4,4] dot(e, e), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  columns = s32[] get-dimension-size(e), dimensions={1}
  count = s32[] multiply(columns, four)
  flat = f32[<=24] dynamic-reshape(e, count)
  all = f32[] reduce(flat, none), dimensions={0}, to_apply=sum
  ROOT r = (f32[4], f32[4,4], s32[], f32[]) tuple(sums, products, columns, all)
}
"""

#: Where slices start is one vector, as older programs write it.
VECTOR = """HloModule vector
ENTRY main {
  x = f32[6,4] parameter(0), sharding={devices=[1,2]<=[2]}
  words = f32[2] parameter(1)
  i = s32[2] convert(words)
  u = f32[2,4] parameter(2)
  part = f32[2,4] dynamic-slice(x, i), dynamic_slice_sizes={2,4}
  whole = f32[6,4] dynamic-update-slice(x, u, i)
  ROOT r = (f32[2,4], f32[6,4]) tuple(part, whole)
}
"""

PROGRAMS = {"draws": DRAWS, "scan": SCAN, "sizes": SIZES, "vector": VECTOR}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_runs_as_it_evaluates(text: str) -> None:
    module = parse_module(text)
    rng = np.random.default_rng(0)
    arrays = [
        np.asarray(3 + rng.normal(size=p.dims)).astype(np.float32) for p in module.entry.parameters
    ]
    wanted = spmd.evaluate(module, *arrays)
    executable = spmd.compile(module, devices=2)
    for _ in range(2):  # the same draws in every run
        for want, got in zip(wanted, executable.run(*arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_draws_differ() -> None:
    walked, normal = spmd.compile(parse_module(DRAWS), devices=2).run(np.zeros(8, np.float32))
    assert len(set(walked.tolist())) == 8
    assert len(set(normal.reshape(-1).tolist())) == 15


#: The replaced instructions stand between others, in an order that no scheduler of this project would choose.
ORDERED = """HloModule ordered, is_scheduled=true
f {
  a = f32[4,3] parameter(0)
  b = f32[4,3] parameter(1)
  ROOT c = f32[4,3] add(a, b)
}
g {
  u = f32[] parameter(0)
  v = f32[] parameter(1)
  ROOT w = f32[] multiply(u, v)
}
ENTRY main {
  x = f32[4,3] parameter(0)
  scale = f32[3] parameter(1)
  late = f32[4,3] sine(x)
  early = f32[4,3] negate(x)
  called = f32[4,3] call(early, x), to_apply=f
  cosine = f32[4,3] cosine(x)
  mapped = f32[4,3] map(called, cosine), dimensions={0,1}, to_apply=g
  fused = f32[4,3] fusion(mapped, late), kind=kLoop, calls=f
  normal = (f32[4,3], f32[3], f32[3]) batch-norm-training(fused, scale, scale), epsilon=0.01, feature_index=1
  last = f32[4,3] get-tuple-element(normal), index=0
  low = f32[] constant(0)
  high = f32[] constant(1)
  uniform = f32[4,3] rng(low, high), distribution=rng_uniform
  ROOT r = f32[4,3] add(last, uniform)
}
"""


def as_scheduled(text: str) -> str:
    """The same for one device, whose order is taken as it stands."""
    name = text.split("\n", 1)[0]
    plain = re.sub(r", sharding=\{.*?\}(?=\n)", "", text)
    return plain.replace(name, name.removesuffix(", is_scheduled=true") + ", is_scheduled=true")


@pytest.mark.parametrize("text", [*PROGRAMS.values(), ORDERED], ids=[*PROGRAMS, "ordered"])
def test_a_program_that_comes_scheduled_runs_as_it_evaluates(text: str) -> None:
    module = parse_module(as_scheduled(text))
    rng = np.random.default_rng(0)
    arrays = [
        np.asarray(3 + rng.normal(size=p.dims)).astype(np.float32) for p in module.entry.parameters
    ]
    wanted = spmd.evaluate(module, *arrays)
    for want, got in zip(wanted, spmd.compile(module).run(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_schedule_keeps_its_order() -> None:
    module = parse_module(ORDERED)
    options = CompileOptions(fusion=False)
    found = spmd.compile(module, options=options).module.entry.instructions
    # "last" is an element of a tuple that the expansion takes apart.
    named = {i.name: n for n, i in enumerate(found)}
    kept = [i.name for i in module.entry.instructions if i.name in named]
    assert kept == sorted(kept, key=named.__getitem__)
    assert {"late", "early", "cosine", "low", "high"} <= set(kept)
    gone = {Opcode.CALL, Opcode.MAP, Opcode.FUSION, Opcode.BATCH_NORM_TRAINING, Opcode.RNG}
    assert not gone & {i.opcode for i in found}


def test_shardings_inside_a_module_that_is_declared_partitioned_mean_nothing() -> None:
    program = spmd.parse("""HloModule m, replica_count=2
ENTRY main {
  x = f32[4] parameter(0), sharding={maximal device=0}
  y = f32[4] parameter(1), sharding={maximal device=1}
  a = f32[8] all-gather(x), replica_groups={}, dimensions={0}, sharding={maximal device=0}
  b = f32[8] all-gather(y), replica_groups={}, dimensions={0}, sharding={maximal device=1}
  c = f32[8] domain(a), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=0}}
  ROOT t = (f32[8], f32[8]) tuple(c, b), sharding={{maximal device=0}, {maximal device=1}}
}""")
    executable = spmd.compile(program, devices=2, options=CompileOptions(partitioned=True))
    x = np.arange(4, dtype=np.float32)
    for outputs in executable.run_devices([[x, x], [x + 4, -x]]):
        np.testing.assert_array_equal(outputs[0], np.arange(8))
        np.testing.assert_array_equal(outputs[1], [0, 1, 2, 3, 0, -1, -2, -3])


def test_on_one_device_no_mesh_is_needed() -> None:
    program = spmd.parse("""HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  ROOT s = f32[4] custom-call(x), custom_call_target="Sharding", sharding={replicated}, frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}]>]>"}
}""")
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(spmd.compile(program, devices=1).run(x)[0], x)
    with pytest.raises(ShardingError, match="no mesh"):
        spmd.compile(program, devices=2)


def test_a_tuple_goes_to_the_hosts_memory_and_back() -> None:
    program = spmd.parse("""HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  y = s32[2] parameter(1)
  t = (f32[4], s32[2]) tuple(x, y)
  h = (f32[4], s32[2]) custom-call(t), custom_call_target="MoveToHost"
  ROOT d = (f32[4], s32[2]) custom-call(h), custom_call_target="MoveToDevice"
}""")
    x, y = np.arange(4, dtype=np.float32), np.arange(2, dtype=np.int32)
    for found, wanted in zip(spmd.compile(program, devices=1).run(x, y), (x, y), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_iota_without_elements_takes_no_memory() -> None:
    program = spmd.parse("""HloModule m
ENTRY main {
  ROOT i = f32[1000000000000,0] iota(), iota_dimension=0
}""")
    assert spmd.compile(program, devices=1).run()[0].shape == (1_000_000_000_000, 0)
