"""Loops whose result is what a region around them gives, and whose first value is made there beside older ones."""

from __future__ import annotations

#: The inner loop: twice, each time the sine. Its state has the trip's number and one array.
_SINES = """
sines {
  s = (s32[], f32[4,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n2 = s32[] add(n, one)
  y = f32[4,4] sine(x)
  ROOT t = (s32[], f32[4,4]) tuple(n2, y)
}
twice {
  s = (s32[], f32[4,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(2)
  ROOT l = pred[] compare(n, k), direction=LT
}
"""


def _in_a_loop(name: str, first: str) -> str:
    """Return a module whose outer loop makes ``i``, the inner loop's first value, of its state ``x``."""
    return f"""HloModule {name}
{_SINES}
body {{
  s = (s32[], f32[4,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n2 = s32[] add(n, one)
  zero = s32[] constant(0)
{first}
  t = (s32[], f32[4,4]) tuple(zero, i)
  w = (s32[], f32[4,4]) while(t), condition=twice, body=sines
  y = f32[4,4] get-tuple-element(w), index=1
  ROOT r = (s32[], f32[4,4]) tuple(n2, y)
}}
ENTRY main {{
  p = f32[4,4] parameter(0)
  x0 = f32[4,4] negate(p)
  zero = s32[] constant(0)
  t = (s32[], f32[4,4]) tuple(zero, x0)
  w = (s32[], f32[4,4]) while(t), condition=twice, body=body
  ROOT x = f32[4,4] get-tuple-element(w), index=1
}}
"""


#: The old state is read, transposed, where the first value is written: it may not be written over it.
FIRST_VALUE_READS_STATE = _in_a_loop(
    "first_value_reads_state",
    """  xt = f32[4,4] transpose(x), dimensions={1,0}
  i = f32[4,4] subtract(xt, x)""",
)

#: The first value lies where an operand of it lay, which was written before the old state's last read.
FIRST_VALUE_OVER_PRODUCT = _in_a_loop(
    "first_value_over_product",
    """  d = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  xt = f32[4,4] transpose(x), dimensions={1,0}
  i = f32[4,4] subtract(d, xt)""",
)

#: The first value overwrites the old state, element by element.
FIRST_VALUE_OVER_STATE = _in_a_loop("first_value_over_state", "  i = f32[4,4] cosine(x)")

#: One branch gives a new array; the other loops over one that the first still reads.
LOOP_IN_A_BRANCH = f"""HloModule loop_in_a_branch
{_SINES}
straight {{
  x = f32[4,4] parameter(0)
  y = f32[4,4] cosine(x)
  xt = f32[4,4] transpose(x), dimensions={{1,0}}
  z = f32[4,4] subtract(y, xt)
  ROOT r = (f32[4,4], f32[4,4]) tuple(y, z)
}}
looped {{
  x = f32[4,4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[4,4]) tuple(zero, x)
  w = (s32[], f32[4,4]) while(t), condition=twice, body=sines
  y = f32[4,4] get-tuple-element(w), index=1
  z = f32[4,4] cosine(y)
  ROOT r = (f32[4,4], f32[4,4]) tuple(y, z)
}}
ENTRY main {{
  p = pred[] parameter(0)
  a = f32[4,4] parameter(1)
  x = f32[4,4] negate(a)
  ROOT r = (f32[4,4], f32[4,4]) conditional(p, x, x), true_computation=straight, false_computation=looped
}}
"""
