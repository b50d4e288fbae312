"""Small modules whose explanations the tests know."""

from __future__ import annotations

#: A matrix product over a split contracting dimension: its result is partial.
CONTRACTED = """
HloModule contracted, num_partitions=2
ENTRY main {
  x = f32[64,32]{1,0} parameter(0), sharding={devices=[1,2]<=[2]}, metadata={op_name="x" source_file="model.py" source_line=7}
  w = f32[32,16]{1,0} parameter(1), sharding={devices=[2,1]<=[2]}
  product = f32[64,16]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="dot" source_file="model.py" source_line=9}
  ROOT result = f32[64,16]{1,0} tanh(product)
}
"""

#: A constraint that gathers for nothing: rows are split before and after it.
GATHERED = """
HloModule gathered, num_partitions=4
ENTRY main {
  x = f32[64,32]{1,0} parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[64,32]{1,0} tanh(x)
  whole = f32[64,32]{1,0} custom-call(y), custom_call_target="Sharding", sharding={replicated}
  z = f32[64,32]{1,0} negate(whole)
  ROOT result = f32[64,32]{1,0} custom-call(z), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}
}
"""

#: A parameter split along columns that is used along rows only.
TURNED = """
HloModule turned, num_partitions=4
ENTRY main {
  x = f32[64,32]{1,0} parameter(0), sharding={devices=[1,4]<=[4]}
  y = f32[64,32]{1,0} tanh(x)
  ROOT result = f32[64,32]{1,0} custom-call(y), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}
}
"""

#: Rows of one operand and columns of the other claim the same axis.
CONTESTED = """
HloModule contested, num_partitions=2
ENTRY main {
  x = f32[64,32]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  w = f32[32,16]{1,0} parameter(1), sharding={devices=[1,2]<=[2]}
  ROOT product = f32[64,16]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

#: Two operands of one sum, split by one axis along different dimensions.
DISAGREEING = """
HloModule disagreeing, num_partitions=4
ENTRY main {
  x = f32[64,32]{1,0} parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  y = f32[64,32]{1,0} parameter(1), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  ROOT sum = f32[64,32]{1,0} add(x, y)
}
"""

#: A body that sums over its split rows in each of five iterations.
LOOPED = """
HloModule looped, num_partitions=2
add_f32 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
body {
  state = (s32[], f32[64,32]{1,0}, f32[32]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[64,32]{1,0} get-tuple-element(state), index=1
  total = f32[32]{0} get-tuple-element(state), index=2
  zero = f32[] constant(0)
  rows = f32[32]{0} reduce(x, zero), dimensions={0}, to_apply=add_f32
  ratio = f32[32]{0} multiply(rows, total)
  ROOT tuple = (s32[], f32[64,32]{1,0}, f32[32]{0}) tuple(next, x, ratio)
}
condition {
  state = (s32[], f32[64,32]{1,0}, f32[32]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(5)
  ROOT less = pred[] compare(i, limit), direction=LT
}
ENTRY main {
  x = f32[64,32]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  t = f32[32]{0} parameter(1), sharding={replicated}
  start = s32[] constant(0)
  initial = (s32[], f32[64,32]{1,0}, f32[32]{0}) tuple(start, x, t)
  loop = (s32[], f32[64,32]{1,0}, f32[32]{0}) while(initial), condition=condition, body=body
  ROOT result = f32[32]{0} get-tuple-element(loop), index=2
}
"""
