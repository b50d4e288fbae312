"""Values in several memory spaces: straight on, through loops, branches and calls, over donated parameters."""

from __future__ import annotations

#: To space 5 and back, twice at once; one in two halves; constants and outputs in both spaces.
SPACES = """HloModule spaces, is_scheduled=true, input_output_alias={ {2}: (1, {}, may-alias) }
ENTRY main {
  x = f32[64]{0} parameter(0)
  y = f32[64]{0} parameter(1)
  hs = (f32[64]{0:S(5)}, f32[64]{0}, u32[]) copy-start(x)
  a = f32[64]{0} sine(x)
  h = f32[64]{0:S(5)} copy-done(hs)
  i = f32[64]{0:S(5)} copy(a)
  k = f32[64]{0:S(5)} constant({...})
  d = f32[64]{0:S(5)} negate(h)
  e = f32[64]{0:S(5)} multiply(d, i)
  f = f32[64]{0} copy(e)
  j = f32[8,8]{1,0:S(5)} reshape(d)
  t = f32[8,8]{0,1} transpose(j), dimensions={1,0}
  r = f32[64]{0} reshape(t)
  z = f32[64]{0} add(f, r)
  o = f32[64]{0:S(5)} add(e, k)
  ROOT all = (f32[64]{0}, f32[64]{0:S(5)}, f32[64]{0:S(5)}) tuple(z, o, i)
}
""".replace("{...}", "{" + ", ".join(map(str, range(64))) + "}")

#: Leaf 1 works in space 5 and is made in space 0; leaf 2 passes through in space 5 and comes from space 0; leaf 3 goes
#: to space 5 and back on each trip.
SPACES_LOOP = """HloModule spaces_loop, is_scheduled=true
body {
  s = (s32[], f32[32]{0:S(5)}, f32[32]{0:S(5)}, f32[32]{0}) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  a = f32[32]{0:S(5)} get-tuple-element(s), index=1
  b = f32[32]{0:S(5)} get-tuple-element(s), index=2
  c = f32[32]{0} get-tuple-element(s), index=3
  one = s32[] constant(1)
  n2 = s32[] add(n, one)
  cold = f32[32]{0:S(5)} copy(c)
  a2 = f32[32]{0} add(a, b)
  w = f32[32]{0:S(5)} add(cold, b)
  c2 = f32[32]{0} copy(w)
  ROOT t = (s32[], f32[32]{0:S(5)}, f32[32]{0:S(5)}, f32[32]{0}) tuple(n2, a2, b, c2)
}
cond {
  s = (s32[], f32[32]{0:S(5)}, f32[32]{0:S(5)}, f32[32]{0}) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT l = pred[] compare(n, five), direction=LT
}
ENTRY main {
  x = f32[32]{0} parameter(0)
  y = f32[32]{0} parameter(1)
  zero = s32[] constant(0)
  p = f32[32]{0} sine(x)
  q = f32[32]{0} cosine(y)
  t = (s32[], f32[32]{0}, f32[32]{0}, f32[32]{0}) tuple(zero, p, q, p)
  l = (s32[], f32[32]{0:S(5)}, f32[32]{0:S(5)}, f32[32]{0}) while(t), condition=cond, body=body
  a = f32[32]{0:S(5)} get-tuple-element(l), index=1
  b = f32[32]{0:S(5)} get-tuple-element(l), index=2
  c = f32[32]{0} get-tuple-element(l), index=3
  u = f32[32]{0} add(a, b)
  ROOT r = (f32[32]{0}, f32[32]{0}) tuple(u, c)
}
"""

#: The branches leave their results in different spaces; a call passes one on from space 5.
SPACES_BRANCHES = """HloModule spaces_branches, is_scheduled=true
cold {
  p = f32[16]{0} parameter(0)
  ROOT c = f32[16]{0:S(5)} copy(p)
}
left {
  p = f32[16]{0} parameter(0)
  ROOT l = f32[16]{0:S(5)} sine(p)
}
right {
  p = f32[16]{0} parameter(0)
  ROOT r = f32[16]{0} cosine(p)
}
ENTRY main {
  x = f32[16]{0} parameter(0)
  y = f32[16]{0} parameter(1)
  m = f32[16]{0} multiply(x, y)
  first = f32[1]{0} slice(m), slice={[0:1]}
  scalar = f32[] reshape(first)
  zero = f32[] constant(0)
  positive = pred[] compare(scalar, zero), direction=GT
  i = f32[16]{0:S(5)} conditional(positive, m, m), true_computation=left, false_computation=right
  k = f32[16]{0:S(5)} call(m), to_apply=cold
  n = f32[16]{0:S(5)} negate(k)
  w = f32[16]{0} add(i, n)
  ROOT o = f32[16]{0} add(w, m)
}
"""
