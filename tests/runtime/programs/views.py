"""Operands that are views of memory, or die where they lie otherwise."""

from __future__ import annotations

ELEMENTWISE = """HloModule elementwise
ENTRY main {
  x = f32[64,32] parameter(0)
  y = f32[64,32] parameter(1)
  a = f32[64,32] multiply(x, y)
  b = f32[64,32] exponential(a)
  c = f32[64,32] add(a, b)
  ROOT d = f32[64,32] subtract(c, y)
}
"""

#: x + x^T: the transpose is a view of x's memory, so the sum must not be written over it.
SYMMETRIC = """HloModule symmetric
ENTRY main {
  p = f32[32,32] parameter(0)
  x = f32[32,32] negate(p)
  t = f32[32,32] transpose(x), dimensions={1,0}
  s = f32[32,32] add(x, t)
  ROOT r = f32[32,32] multiply(s, s)
}
"""

#: Views of every kind, one on the other, of a value that has other readers.
VIEWS = """HloModule views
ENTRY main {
  p = f32[4,6] parameter(0)
  x = f32[4,6] exponential(p)
  s = f32[2,3] slice(x), slice={[1:4:2], [0:6:2]}
  r = f32[2,3] reverse(s), dimensions={1}
  t = f32[3,2] transpose(r), dimensions={1,0}
  m = f32[6] reshape(t)
  b = f32[4,6] broadcast(m), dimensions={1}
  n = f32[4,6] negate(x)
  i = s32[4,6] iota(), iota_dimension=0
  f = f32[4,6] convert(i)
  a = f32[4,6] add(b, n)
  ROOT o = f32[4,6] multiply(a, f)
}
"""

#: Operands that die where they are read, but not as they lie in memory, or not element by element. The product's terms
#: have one sign, so that every order of them has 17 roundings of its sum or fewer, and a square twice as many.
DYING_OPERANDS = """HloModule dying_operands
ENTRY main {
  p = f32[16,16] parameter(0)
  q = f32[16,16] parameter(1)
  x = f32[16,16] exponential(p)
  t = f32[16,16] transpose(x), dimensions={1,0}
  a = f32[16,16] abs(q)
  s = f32[16,16] add(t, a)
  b = f32[16,16] abs(p)
  d = f32[16,16] dot(s, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[16,16] multiply(d, d)
}
"""
