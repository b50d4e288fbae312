"""What the runtime has no form of its own for runs in another form: random draws, scans, sizes known when run,
starts as vectors."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
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
