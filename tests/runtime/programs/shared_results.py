"""Collectives whose results are large and the same for all of a group: memory that the group may hold once."""

from __future__ import annotations

from tests.runtime.programs.collectives import SUM

#: Rows {0,1},{2,3} and columns {0,2},{1,3} of four devices.
_ROWS = "channel_id={}, replica_groups={{{{0,1}},{{2,3}}}}, use_global_device_ids=true"
_COLUMNS = "channel_id={}, replica_groups={{{{0,2}},{{1,3}}}}, use_global_device_ids=true"

#: g and h lie in one place of the rows' heap, one after the other; k in the columns' heap while h lives. The sum over
#: k's columns is written over a dying operand, the small one goes through slots: both stay each device's own. While h and k live so does v, and
#: what is private takes no more at any other time: so the heaps apart are no larger than one.
SHARED = f"""HloModule shared, num_partitions=4, is_scheduled=true
{SUM}
ENTRY main {{
  x = f32[2048] parameter(0)
  zero = f32[] constant(0)
  a = f32[2048] sine(x)
  g = f32[4096] all-gather(a), {_ROWS.format(1)}, dimensions={{0}}
  g2 = f32[2,2048] reshape(g)
  b = f32[2048] reduce(g2, zero), dimensions={{0}}, to_apply=sum
  c = f32[2048] cosine(b)
  h = f32[4096] all-gather(c), {_ROWS.format(2)}, dimensions={{0}}
  v = f32[4096] concatenate(b, b), dimensions={{0}}
  k = f32[4096] all-gather(b), {_COLUMNS.format(3)}, dimensions={{0}}
  k1 = f32[4096] add(v, k)
  k2 = f32[2,2048] reshape(k1)
  d = f32[2048] reduce(k2, zero), dimensions={{0}}, to_apply=sum
  h2 = f32[2,2048] reshape(h)
  e = f32[2048] reduce(h2, zero), dimensions={{0}}, to_apply=sum
  r = f32[2048] all-reduce(d), {_COLUMNS.format(4)}, to_apply=sum
  s = f32[2048] slice(h), slice={{[1024:3072]}}
  m = f32[2048] multiply(e, s)
  small = f32[64] slice(m), slice={{[0:64]}}
  q = f32[128] all-gather(small), {_ROWS.format(5)}, dimensions={{0}}
  n = f32[2048] add(m, r)
  ROOT o = (f32[2048], f32[128]) tuple(n, q)
}}
"""

#: On every trip, what the trip before left in shared memory is overwritten; w is gathered before and read in the loop.
SHARED_LOOP = f"""HloModule shared_loop, num_partitions=4, is_scheduled=true
{SUM}
body {{
  s = (s32[], f32[2048], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2048] get-tuple-element(s), index=1
  w = f32[4096] get-tuple-element(s), index=2
  one = s32[] constant(1)
  i2 = s32[] add(i, one)
  zero = f32[] constant(0)
  a = f32[2048] sine(x)
  g = f32[4096] all-gather(a), {_ROWS.format(1)}, dimensions={{0}}
  g2 = f32[2,2048] reshape(g)
  b = f32[2048] reduce(g2, zero), dimensions={{0}}, to_apply=sum
  h = f32[4096] all-gather(b), {_ROWS.format(2)}, dimensions={{0}}
  hs = f32[2048] slice(h), slice={{[0:4096:2]}}
  ws = f32[2048] slice(w), slice={{[1024:3072]}}
  x2 = f32[2048] multiply(hs, ws)
  ROOT t = (s32[], f32[2048], f32[4096]) tuple(i2, x2, w)
}}
cond {{
  s = (s32[], f32[2048], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  trips = s32[] constant(5)
  ROOT l = pred[] compare(i, trips), direction=LT
}}
ENTRY main {{
  x = f32[2048] parameter(0)
  zero = s32[] constant(0)
  y = f32[2048] cosine(x)
  w = f32[4096] all-gather(y), {_ROWS.format(3)}, dimensions={{0}}
  t = (s32[], f32[2048], f32[4096]) tuple(zero, x, w)
  l = (s32[], f32[2048], f32[4096]) while(t), condition=cond, body=body
  ROOT r = f32[2048] get-tuple-element(l), index=1
}}
"""

#: A group's gathered array is the state of a loop, a branch's result, or an output: each device has its own memory.
SHARED_NOWHERE = f"""HloModule shared_nowhere, num_partitions=4, is_scheduled=true
{SUM}
body {{
  s = (s32[], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4096] get-tuple-element(s), index=1
  one = s32[] constant(1)
  i2 = s32[] add(i, one)
  part = f32[2048] slice(x), slice={{[0:4096:2]}}
  g = f32[4096] all-gather(part), {_ROWS.format(1)}, dimensions={{0}}
  ROOT t = (s32[], f32[4096]) tuple(i2, g)
}}
cond {{
  s = (s32[], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  trips = s32[] constant(3)
  ROOT l = pred[] compare(i, trips), direction=LT
}}
gathered {{
  p = f32[2048] parameter(0)
  ROOT g = f32[4096] all-gather(p), {_ROWS.format(2)}, dimensions={{0}}
}}
negated {{
  p = f32[2048] parameter(0)
  n = f32[2048] negate(p)
  ROOT g = f32[4096] all-gather(n), {_ROWS.format(6)}, dimensions={{0}}
}}
ENTRY main {{
  x = f32[2048] parameter(0)
  flag = pred[] parameter(1)
  y = f32[2048] sine(x)
  c = f32[4096] conditional(flag, y, y), true_computation=gathered, false_computation=negated
  g = f32[4096] all-gather(y), {_ROWS.format(3)}, dimensions={{0}}
  zero = s32[] constant(0)
  t = (s32[], f32[4096]) tuple(zero, g)
  l = (s32[], f32[4096]) while(t), condition=cond, body=body
  u = f32[4096] get-tuple-element(l), index=1
  z = f32[2048] cosine(x)
  v = f32[4096] all-gather(z), {_ROWS.format(4)}, dimensions={{0}}
  cs = f32[2048] slice(c), slice={{[1024:3072]}}
  us = f32[2048] slice(u), slice={{[1024:3072]}}
  w = f32[2048] add(cs, us)
  out = f32[4096] all-gather(z), {_ROWS.format(5)}, dimensions={{0}}
  v2 = f32[4096] negate(v)
  vs = f32[2048] slice(v2), slice={{[1024:3072]}}
  m = f32[2048] multiply(vs, w)
  ROOT o = (f32[2048], f32[4096]) tuple(m, out)
}}
"""

#: In flight at the same time, over rows and over columns, in a branch too; shared from the start to the last use.
SHARED_ASYNC = f"""HloModule shared_async, num_partitions=4, is_scheduled=true
{SUM}
wrapped {{
  p = f32[2048] parameter(0)
  ROOT g = f32[4096] all-gather(p), {_COLUMNS.format(1)}, dimensions={{0}}
}}
branch {{
  p = f32[2048] parameter(0)
  zero = f32[] constant(0)
  s = (f32[2048], f32[4096]) all-gather-start(p), {_ROWS.format(2)}, dimensions={{0}}
  q = f32[2048] cosine(p)
  g = f32[4096] all-gather-done(s)
  g2 = f32[2,2048] reshape(g)
  r = f32[2048] reduce(g2, zero), dimensions={{0}}, to_apply=sum
  ROOT a = f32[2048] add(q, r)
}}
other {{
  p = f32[2048] parameter(0)
  ROOT n = f32[2048] negate(p)
}}
ENTRY main {{
  x = f32[2048] parameter(0)
  flag = pred[] parameter(1)
  zero = f32[] constant(0)
  a = f32[2048] sine(x)
  s = f32[2048] all-reduce-start(a), {_ROWS.format(3)}, to_apply=sum
  b = f32[2048] cosine(x)
  t = ((f32[2048]), f32[4096]) async-start(b), calls=wrapped
  c = f32[2048] exponential(x)
  d = f32[2048] all-reduce-done(s)
  d2 = f32[2,1024] reshape(d)
  e = f32[1024] reduce(d2, zero), dimensions={{0}}, to_apply=sum
  f = f32[2048] conditional(flag, c, c), true_computation=branch, false_computation=other
  g = f32[4096] async-done(t)
  g2 = f32[2,2048] reshape(g)
  h = f32[2048] reduce(g2, zero), dimensions={{0}}, to_apply=sum
  i = f32[2048] add(f, h)
  ROOT o = (f32[2048], f32[1024]) tuple(i, e)
}}
"""

#: Each member of a row gets another part of the sum: as large as a gathered result, and nothing to hold once.
SCATTERED = f"""HloModule scattered, num_partitions=4, is_scheduled=true
{SUM}
ENTRY main {{
  x = f32[2048] parameter(0)
  zero = f32[] constant(0)
  a = f32[2048] sine(x)
  u = f32[8192] concatenate(a, x, a, a), dimensions={{0}}
  s = f32[4096] reduce-scatter(u), {_ROWS.format(1)}, dimensions={{0}}, to_apply=sum
  rows = f32[2,2048] reshape(s)
  ROOT o = f32[2048] reduce(rows, zero), dimensions={{0}}, to_apply=sum
}}
"""

#: Members swap their rows where they lie, three times over, while the operand of the first is still read.
ALL_TO_ALLS = """HloModule all_to_alls, num_partitions=2, is_scheduled=true
ENTRY main {
  x = f32[64,32] parameter(0)
  y = f32[64,32] sine(x)
  a = f32[64,32] all-to-all(y), channel_id=1, replica_groups={{0,1}}, dimensions={0}
  b = f32[64,32] negate(a)
  c = f32[64,32] all-to-all(b), channel_id=2, replica_groups={{0,1}}, dimensions={1}
  d = f32[64,32] all-to-all(c), channel_id=3, replica_groups={{0,1}}, dimensions={0}
  e = f32[64,32] add(d, y)
  ROOT o = (f32[64,32], f32[64,32]) tuple(e, a)
}
"""

SHARING = {
    "shared": SHARED,
    "shared_loop": SHARED_LOOP,
    "shared_nowhere": SHARED_NOWHERE,
    "shared_async": SHARED_ASYNC,
    "scattered": SCATTERED,
    "all_to_alls": ALL_TO_ALLS,
}
