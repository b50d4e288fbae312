"""The count of bytes that kernels move: parts of operands, updates in place, loops; the same on both sides."""

from __future__ import annotations

import spmd
from benchmarks.timing.kernel_bytes import kernel_bytes
from benchmarks.traffic_report import our_kernels, peer_kernels

FUSED = """HloModule fused
part {
  x = f32[64,8] parameter(0)
  i = s32[] parameter(1)
  y = f32[8] parameter(2)
  zero = s32[] constant(0)
  row = f32[1,8] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,8}
  flat = f32[8] bitcast(row)
  ROOT sum = f32[8] add(flat, y)
}
update {
  x = f32[64,8] parameter(0)
  i = s32[] parameter(1)
  y = f32[1,8] parameter(2)
  zero = s32[] constant(0)
  twice = f32[1,8] add(y, y)
  ROOT new = f32[64,8] dynamic-update-slice(x, twice, i, zero)
}
whole {
  x = f32[64,8] parameter(0)
  part = f32[8,8] slice(x), slice={[0:8], [0:8]}
  all = f32[64,8] negate(x)
  ROOT both = (f32[8,8], f32[64,8]) tuple(part, all)
}
ENTRY main {
  x = f32[64,8] parameter(0)
  i = s32[] parameter(1)
  y = f32[8] parameter(2)
  z = f32[1,8] parameter(3)
  a = f32[8] fusion(x, i, y), kind=kLoop, calls=part
  b = f32[64,8] fusion(x, i, z), kind=kLoop, calls=update
  c = (f32[8,8], f32[64,8]) fusion(x), kind=kLoop, calls=whole
  ROOT t = (f32[8], f32[64,8], (f32[8,8], f32[64,8])) tuple(a, b, c)
}
"""
LOOP = """HloModule loop
less {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT more = pred[] compare(i, n), direction=LT
}
again {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[64] negate(x)
  ROOT t = (s32[], f32[64]) tuple(j, y)
}
ENTRY main {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[64]) tuple(zero, x)
  loop = (s32[], f32[64]) while(start), condition=less, body=again
  ROOT last = f32[64] get-tuple-element(loop), index=1
}
"""
#: Compare reads two numbers and writes a byte; in a trip, add reads two and writes one, and negate.
CONDITION, BODY = 4 + 4 + 1, 3 * 4 + 2 * 4 * 64


def test_a_fusion_counts_what_it_takes_of_an_operand() -> None:
    entry = {x.name: x for x in spmd.parse(FUSED).entry.instructions}
    row, index, array = 4 * 8, 4, 4 * 64 * 8
    assert kernel_bytes(entry["a"]) == row + index + row + row
    assert kernel_bytes(entry["b"]) == 0 + index + row + row  # in place: the update alone
    assert kernel_bytes(entry["c"]) == array + 4 * 8 * 8 + array


def test_loops_count_their_trips() -> None:
    """The condition is asked once more than there are trips."""
    assert sum(x.size for x in peer_kernels(spmd.parse(LOOP))) == 6 * CONDITION + 5 * BODY


def test_ours_are_the_same_kernels_and_the_copies_that_loops_need() -> None:
    """The state begins as copies of what must stay, and a trip may end with such."""
    ours = sum(x.size for x in our_kernels(spmd.parse(LOOP)))
    alone = 6 * CONDITION + 5 * BODY
    assert alone <= ours <= alone + 5 * (2 * 4 * 65) + 4 * 4 * 65
