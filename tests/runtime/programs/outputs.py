"""Donated parameters, and outputs that share or lend memory."""

from __future__ import annotations

#: Both parameters are donated; the first output is ready while the first parameter is still to be read.
DONATED = """HloModule donated, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) }
ENTRY main {
  x = f32[128] parameter(0)
  m = f32[128] parameter(1)
  g = f32[128] parameter(2)
  m2 = f32[128] add(m, g)
  x2 = f32[128] subtract(x, m2)
  l = f32[128] multiply(x, g)
  ROOT t = (f32[128], f32[128], f32[128]) tuple(x2, m2, l)
}
"""

#: Donated parameters whose outputs are each other's old values.
DONATED_SWAP = """HloModule donated_swap, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
ENTRY main {
  x = f32[16] parameter(0)
  y = f32[16] parameter(1)
  ROOT t = (f32[16], f32[16]) tuple(y, x)
}
"""

#: One value as two outputs, a parameter and a constant as outputs.
REPEATED_OUTPUTS = """HloModule repeated_outputs
ENTRY main {
  x = f32[16] parameter(0)
  y = f32[16] negate(x)
  c = f32[3] constant({1, 2, 3})
  r = f32[4,4] reshape(y)
  t = f32[4,4] transpose(r), dimensions={1,0}
  ROOT o = (f32[16], f32[16], f32[16], f32[3], f32[4,4]) tuple(y, y, x, c, t)
}
"""

#: A large value is dead before the output is written, a small one is not.
#: Most is live where p is written: o, which is final by then, wide and p. Then q takes bytes of wide, which is larger.
OUTPUTS_OVER_TEMPORARIES = """HloModule outputs_over_temporaries
ENTRY main {
  x = f32[16,16] parameter(0)
  o = f32[16,16] exponential(x)
  wide = f32[32,16] concatenate(x, o), dimensions={0}
  s = f32[16,16] slice(wide), slice={[0:16], [0:16]}
  u = f32[16,16] slice(wide), slice={[16:32], [0:16]}
  p = f32[16,16] multiply(s, u)
  pt = f32[16,16] transpose(p), dimensions={1,0}
  q = f32[16,16] subtract(p, pt)
  ROOT t = (f32[16,16], f32[16,16], f32[16,16]) tuple(o, p, q)
}
"""

OUTPUT_AS_SPACE = """HloModule output_as_space
ENTRY main {
  x = f32[256] parameter(0)
  a = f32[256] exponential(x)
  r = f32[16,16] reshape(a)
  t = f32[16,16] transpose(r), dimensions={1,0}
  b = f32[16,16] add(r, t)
  q = f32[16,16] transpose(b), dimensions={1,0}
  c = f32[16,16] multiply(b, q)
  u = f32[16,16] transpose(c), dimensions={1,0}
  ROOT d = f32[16,16] subtract(c, u)
}
"""
