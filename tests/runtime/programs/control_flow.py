"""Loops, branches and calls: leaves that swap, rotate, pass through or die, and values read from outside."""

from __future__ import annotations

#: The loop swaps two of its leaves and passes a third one through.
SWAP_LOOP = """HloModule swap_loop
body {
  s = (s32[], f32[8], f32[8], f32[8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  a = f32[8] get-tuple-element(s), index=1
  b = f32[8] get-tuple-element(s), index=2
  w = f32[8] get-tuple-element(s), index=3
  one = s32[] constant(1)
  n2 = s32[] add(n, one)
  a2 = f32[8] add(a, w)
  ROOT t = (s32[], f32[8], f32[8], f32[8]) tuple(n2, b, a2, w)
}
cond {
  s = (s32[], f32[8], f32[8], f32[8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT l = pred[] compare(n, five), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  zero = s32[] constant(0)
  w = f32[8] multiply(x, y)
  t = (s32[], f32[8], f32[8], f32[8]) tuple(zero, x, y, w)
  l = (s32[], f32[8], f32[8], f32[8]) while(t), condition=cond, body=body
  a = f32[8] get-tuple-element(l), index=1
  b = f32[8] get-tuple-element(l), index=2
  c = f32[8] add(w, x)
  ROOT r = (f32[8], f32[8], f32[8]) tuple(a, b, c)
}
"""

#: A pure rotation: every leaf is another one's old value.
ROTATE_LOOP = """HloModule rotate_loop
body {
  s = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  a = f32[4] get-tuple-element(s), index=1
  b = f32[4] get-tuple-element(s), index=2
  c = f32[4] get-tuple-element(s), index=3
  one = s32[] constant(1)
  n2 = s32[] add(n, one)
  ROOT t = (s32[], f32[4], f32[4], f32[4]) tuple(n2, b, c, a)
}
cond {
  s = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(4)
  ROOT l = pred[] compare(n, k), direction=LT
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  zero = s32[] constant(0)
  z = f32[4] add(x, y)
  t = (s32[], f32[4], f32[4], f32[4]) tuple(zero, x, y, z)
  ROOT l = (s32[], f32[4], f32[4], f32[4]) while(t), condition=cond, body=body
}
"""

#: A loop in a loop that updates one buffer row by row, in place; the row it reads is one it has written.
NESTED_UPDATE = """HloModule nested_update
inner_body {
  s = (s32[], s32[], f32[6,4]) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  x = f32[6,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j2 = s32[] add(j, one)
  row = f32[1,4] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,4}
  e = f32[1,4] cosine(row)
  u = f32[6,4] dynamic-update-slice(x, e, j2, zero)
  ROOT t = (s32[], s32[], f32[6,4]) tuple(j2, i, u)
}
inner_cond {
  s = (s32[], s32[], f32[6,4]) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  k = s32[] constant(4)
  ROOT l = pred[] compare(j, k), direction=LT
}
outer_body {
  s = (s32[], f32[6,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[6,4] get-tuple-element(s), index=1
  zero = s32[] constant(0)
  one = s32[] constant(1)
  t = (s32[], s32[], f32[6,4]) tuple(zero, i, x)
  wi = (s32[], s32[], f32[6,4]) while(t), condition=inner_cond, body=inner_body
  y = f32[6,4] get-tuple-element(wi), index=2
  i2 = s32[] add(i, one)
  ROOT r = (s32[], f32[6,4]) tuple(i2, y)
}
outer_cond {
  s = (s32[], f32[6,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = s32[] constant(3)
  ROOT l = pred[] compare(i, k), direction=LT
}
ENTRY main {
  p = f32[6,4] parameter(0)
  x0 = f32[6,4] negate(p)
  zero = s32[] constant(0)
  t = (s32[], f32[6,4]) tuple(zero, x0)
  wo = (s32[], f32[6,4]) while(t), condition=outer_cond, body=outer_body
  ROOT r = f32[6,4] get-tuple-element(wo), index=1
}
"""

#: The loop reads a value from outside on every trip; nothing in it may take that value's memory.
OUTSIDE_READ = """HloModule outside_read
body {
  s = (s32[], f32[16], f32[16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[16] get-tuple-element(s), index=1
  w = f32[16] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n2 = s32[] add(n, one)
  a = f32[16] sine(w)
  b = f32[16] multiply(a, x)
  c = f32[16] add(b, x)
  ROOT t = (s32[], f32[16], f32[16]) tuple(n2, c, w)
}
cond {
  s = (s32[], f32[16], f32[16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(3)
  ROOT l = pred[] compare(n, k), direction=LT
}
ENTRY main {
  x = f32[16] parameter(0)
  w0 = f32[16] exponential(x)
  zero = s32[] constant(0)
  t = (s32[], f32[16], f32[16]) tuple(zero, x, w0)
  l = (s32[], f32[16], f32[16]) while(t), condition=cond, body=body
  y = f32[16] get-tuple-element(l), index=1
  ROOT r = f32[16] negate(y)
}
"""

#: Leaf 2 is written on every trip and read by nobody; leaf 3 is read after its new value is there.
DEAD_LEAF = """HloModule dead_leaf
body {
  s = (s32[], f32[64], f32[64], f32[64]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  a = f32[64] get-tuple-element(s), index=1
  c = f32[64] get-tuple-element(s), index=3
  one = s32[] constant(1)
  n2 = s32[] add(n, one)
  c2 = f32[64] sine(c)
  e = f32[64] multiply(a, c)
  a2 = f32[64] cosine(e)
  ROOT t = (s32[], f32[64], f32[64], f32[64]) tuple(n2, a2, a2, c2)
}
cond {
  s = (s32[], f32[64], f32[64], f32[64]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(3)
  ROOT l = pred[] compare(n, k), direction=LT
}
ENTRY main {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[64], f32[64], f32[64]) tuple(zero, x, x, x)
  w = (s32[], f32[64], f32[64], f32[64]) while(t), condition=cond, body=body
  u = f32[64] get-tuple-element(w), index=1
  v = f32[64] get-tuple-element(w), index=3
  ROOT r = f32[64] add(u, v)
}
"""

CONDITIONAL = """HloModule conditional
yes {
  s = (f32[8], f32[8]) parameter(0)
  a = f32[8] get-tuple-element(s), index=0
  b = f32[8] get-tuple-element(s), index=1
  c = f32[8] add(a, b)
  d = f32[8] exponential(c)
  ROOT t = (f32[8], f32[8]) tuple(d, a)
}
no {
  s = (f32[8], f32[8]) parameter(0)
  a = f32[8] get-tuple-element(s), index=0
  b = f32[8] get-tuple-element(s), index=1
  c = f32[8] multiply(a, b)
  ROOT t = (f32[8], f32[8]) tuple(c, c)
}
ENTRY main {
  p = pred[] parameter(0)
  x = f32[8] parameter(1)
  y = f32[8] negate(x)
  z = f32[8] cosine(x)
  s = (f32[8], f32[8]) tuple(y, z)
  r = (f32[8], f32[8]) conditional(p, s, s), true_computation=yes, false_computation=no
  a = f32[8] get-tuple-element(r), index=0
  b = f32[8] get-tuple-element(r), index=1
  e = f32[8] add(a, y)
  ROOT t = (f32[8], f32[8]) tuple(e, b)
}
"""

#: One computation called three times, twice in a row, from a loop's body and outside.
CALLS = """HloModule calls
f {
  a = f32[16] parameter(0)
  ROOT b = f32[16] cosine(a)
}
g {
  a = f32[16] parameter(0)
  r = f32[4,4] reshape(a)
  t = f32[4,4] transpose(r), dimensions={1,0}
  ROOT b = f32[16] reshape(t)
}
body {
  s = (s32[], f32[16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[16] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n2 = s32[] add(n, one)
  y = f32[16] call(x), to_apply=f
  z = f32[16] call(y), to_apply=f
  w = f32[16] call(z), to_apply=g
  v = f32[16] add(w, x)
  ROOT t = (s32[], f32[16]) tuple(n2, v)
}
cond {
  s = (s32[], f32[16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(3)
  ROOT l = pred[] compare(n, k), direction=LT
}
ENTRY main {
  x = f32[16] parameter(0)
  y = f32[16] call(x), to_apply=f
  zero = s32[] constant(0)
  t = (s32[], f32[16]) tuple(zero, y)
  w = (s32[], f32[16]) while(t), condition=cond, body=body
  u = f32[16] get-tuple-element(w), index=1
  p = f32[16] call(u), to_apply=g
  q = f32[16] call(p), to_apply=g
  ROOT r = f32[16] subtract(q, x)
}
"""
