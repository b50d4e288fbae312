"""Small per-device programs for the runtime's tests, each made to tempt buffer assignment into one kind of mistake."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.compile import build_executable
from runtime.executable import Executable
from spmd.hlo import HloModule, Stage
from spmd.shape import ArrayShape, leaves
from spmd.text.parser import parse_module

SUM = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""

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

#: Operands that die where they are read, but not as they lie in memory, or not element by element.
DYING_OPERANDS = """HloModule dying_operands
ENTRY main {
  p = f32[16,16] parameter(0)
  q = f32[16,16] parameter(1)
  x = f32[16,16] exponential(p)
  t = f32[16,16] transpose(x), dimensions={1,0}
  s = f32[16,16] add(t, q)
  d = f32[16,16] dot(s, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[16,16] multiply(d, d)
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

ALIASING = {
    "calls": CALLS,
    "dying_operands": DYING_OPERANDS,
    "dead_leaf": DEAD_LEAF,
    "elementwise": ELEMENTWISE,
    "symmetric": SYMMETRIC,
    "views": VIEWS,
    "swap_loop": SWAP_LOOP,
    "rotate_loop": ROTATE_LOOP,
    "nested_update": NESTED_UPDATE,
    "outside_read": OUTSIDE_READ,
    "conditional": CONDITIONAL,
    "donated": DONATED,
    "donated_swap": DONATED_SWAP,
    "repeated_outputs": REPEATED_OUTPUTS,
    "output_as_space": OUTPUT_AS_SPACE,
}

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


def module_of(text: str) -> HloModule:
    """The per-device module of ``text``, ready to be scheduled."""
    module = parse_module(text)
    module.stage = Stage.OPTIMIZED
    return module


def compiled(text: str, *, keep_order: bool = False) -> Executable:
    """``keep_order``: the order of the text is the schedule."""
    module = module_of(text)
    if keep_order:
        module.stage = Stage.SCHEDULED
    return build_executable(module)


def random_inputs(module: HloModule, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for parameter in module.entry.parameters:
        for _, shape in leaves(parameter.shape):
            assert isinstance(shape, ArrayShape)
            values = rng.standard_normal(shape.dims) * 2
            arrays.append(np.asarray(values).astype(shape.element_type.numpy))
    return arrays


def assert_same(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)
