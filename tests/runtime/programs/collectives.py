"""Collectives, blocking and in two halves: memory in flight belongs to nobody else."""

from __future__ import annotations

SUM = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""

COLLECTIVES = (
    """HloModule collectives, num_partitions=4
"""
    + SUM
    + """
ENTRY main {
  x = f32[4,4] parameter(0)
  id = u32[] partition-id()
  f = f32[] convert(id)
  b = f32[4,4] broadcast(f), dimensions={}
  y = f32[4,4] add(x, b)
  ar = f32[4,4] all-reduce(y), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum
  t = f32[4,4] transpose(ar), dimensions={1,0}
  ag = f32[8,4] all-gather(t), channel_id=2, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, dimensions={0}
  rs = f32[2,4] reduce-scatter(ag), channel_id=3, replica_groups=[1,4]<=[4], use_global_device_ids=true, dimensions={0}, to_apply=sum
  aa = f32[4,4] all-to-all(x), channel_id=4, replica_groups={{0,1,2,3}}, dimensions={0}
  cp = f32[2,4] collective-permute(rs), channel_id=5, source_target_pairs={{0,1},{1,2},{2,3}}
  ROOT o = (f32[4,4], f32[2,4], f32[4,4], f32[2,4]) tuple(y, rs, aa, cp)
}
"""
)

#: The operand dies at the start: until the done, nobody may take its memory.
ASYNC_COLLECTIVES = (
    """HloModule async_collectives, num_partitions=2
"""
    + SUM
    + """
ENTRY main {
  x = f32[32] parameter(0)
  a = f32[32] sine(x)
  s = f32[32] all-reduce-start(a), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  b = f32[32] cosine(x)
  g = (f32[32], f32[64]) all-gather-start(b), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}
  c = f32[32] exponential(x)
  e = f32[32] multiply(c, x)
  p = (f32[32], f32[32]) collective-permute-start(e), channel_id=3, source_target_pairs={{0,1},{1,0}}
  f = f32[32] negate(x)
  h = f32[32] tanh(f)
  d = f32[32] all-reduce-done(s)
  gd = f32[64] all-gather-done(g)
  pd = f32[32] collective-permute-done(p)
  k = f32[32] add(d, h)
  l = f32[32] add(k, pd)
  ROOT o = (f32[32], f32[64]) tuple(l, gd)
}
"""
)

#: Any collective in two halves: the generic form, around a computation.
ASYNC_WRAPPED = (
    """HloModule async_wrapped, num_partitions=2
"""
    + SUM
    + """
wrapped {
  p = f32[4,4] parameter(0)
  ROOT rs = f32[2,4] reduce-scatter(p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}, to_apply=sum
}
ENTRY main {
  x = f32[4,4] parameter(0)
  y = f32[4,4] sine(x)
  s = ((f32[4,4]), f32[2,4]) async-start(y), calls=wrapped
  z = f32[4,4] cosine(x)
  d = f32[2,4] async-done(s)
  ROOT t = (f32[2,4], f32[4,4]) tuple(d, z)
}
"""
)

#: A loop whose state is moved on; outputs gathered from what dies there, in the heap and in donated parameters. Of two
#: operands one is used later, of another the parameter's place is: these lie elsewhere. What is scattered dies there,
#: or is used later.
OVER_OPERANDS = (
    """HloModule over_operands, num_partitions=4, input_output_alias={ {1}: (1, {}, may-alias), {2}: (2, {}, may-alias) }
"""
    + SUM
    + """
condition {
  state = (s32[], f32[640]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(3)
  ROOT more = pred[] compare(i, n), direction=LT
}

body {
  state = (s32[], f32[640]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[640] get-tuple-element(state), index=1
  y = f32[640] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  ROOT both = (s32[], f32[640]) tuple(next, y)
}

ENTRY main {
  x = f32[640] parameter(0)
  old = f32[1280] parameter(1)
  older = f32[1280] parameter(2)
  used = f32[1280] negate(old)
  zero = s32[] constant(0)
  start = (s32[], f32[640]) tuple(zero, x)
  end = (s32[], f32[640]) while(start), condition=condition, body=body
  moved = f32[640] get-tuple-element(end), index=1
  late = f32[640] collective-permute(moved), channel_id=2, source_target_pairs={{1,0},{2,1},{3,2}}
  few = f32[16] slice(late), slice={[0:16]}
  tile = f32[16] sine(few)
  own = f32[64] all-gather(tile), channel_id=3, replica_groups={{0,1,2,3}}, use_global_device_ids=true, dimensions={0}
  c = f32[640] cosine(x)
  back = f32[1280] all-gather(c), channel_id=4, replica_groups={{2,0},{1,3}}, use_global_device_ids=true, dimensions={0}
  d = f32[640] tanh(x)
  still = f32[1280] negate(older)
  taken = f32[1280] all-gather(d), channel_id=5, replica_groups={{2,0},{1,3}}, use_global_device_ids=true, dimensions={0}
  e = f32[32] slice(late), slice={[16:48]}
  f = f32[32] sine(e)
  twice = f32[128] all-gather(f), channel_id=6, replica_groups={{0,1,2,3}}, use_global_device_ids=true, dimensions={0}
  again = f32[32] negate(f)
  g = f32[640] exponential(x)
  part = f32[160] reduce-scatter(g), channel_id=7, replica_groups={{1,3,0,2}}, use_global_device_ids=true, dimensions={0}, to_apply=sum
  some = f32[160] negate(part)
  head = f32[16] slice(some), slice={[0:16]}
  left = f32[16] negate(head)
  h = f32[640] logistic(x)
  apart = f32[160] reduce-scatter(h), channel_id=8, replica_groups={{1,3,0,2}}, use_global_device_ids=true, dimensions={0}, to_apply=sum
  used_h = f32[640] sine(h)
  turned = f32[160] reverse(apart), dimensions={0}
  up = f32[160] negate(turned)
  ROOT o = (f32[64], f32[1280], f32[1280], f32[1280], f32[1280], f32[128], f32[32], f32[16], f32[160], f32[640]) tuple(own, back, taken, used, still, twice, again, left, up, used_h)
}
"""
)

#: Products of complex numbers are rounded as NumPy does, so Python carries this one.
CARRIED_BY_PYTHON = """HloModule carried, num_partitions=4
product {
  a = c64[] parameter(0)
  b = c64[] parameter(1)
  ROOT c = c64[] multiply(a, b)
}
ENTRY main {
  x = c64[3] parameter(0)
  y = c64[3] add(x, x)
  p = c64[3] all-reduce(y), channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true, to_apply=product
  ROOT z = c64[3] add(p, x)
}
"""
