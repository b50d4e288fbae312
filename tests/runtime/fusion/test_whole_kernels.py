"""Tests of what becomes one kernel: softmax, layer norm, their gradients, an Adam update.

Memory must not rise for it.
"""

from __future__ import annotations

import pytest

from runtime.compile import schedule_module
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.schedule.exact_memory import device_bytes
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.text.parser import parse_module

REDUCERS = """sum {
  u = f32[] parameter(0)
  v = f32[] parameter(1)
  ROOT w = f32[] add(u, v)
}
most {
  u = f32[] parameter(0)
  v = f32[] parameter(1)
  ROOT w = f32[] maximum(u, v)
}"""

SOFTMAX = """
  x = f32[R,C] parameter(0)
  low = f32[] constant(-inf)
  z = f32[] constant(0)
  m = f32[R] reduce(x, low), dimensions={1}, to_apply=most
  ms = f32[R,C] broadcast(m), dimensions={0}
  d = f32[R,C] subtract(x, ms)
  e = f32[R,C] exponential(d)
  s = f32[R] reduce(e, z), dimensions={1}, to_apply=sum
  ss = f32[R,C] broadcast(s), dimensions={0}
  ROOT p = f32[R,C] divide(e, ss)"""

SOFTMAX_GRADIENT = """
  p = f32[R,C] parameter(0)
  g = f32[R,C] parameter(1)
  z = f32[] constant(0)
  pg = f32[R,C] multiply(p, g)
  s = f32[R] reduce(pg, z), dimensions={1}, to_apply=sum
  ss = f32[R,C] broadcast(s), dimensions={0}
  d = f32[R,C] subtract(g, ss)
  ROOT o = f32[R,C] multiply(p, d)"""

LAYER_NORM = """
  x = f32[R,C] parameter(0)
  gamma = f32[C] parameter(1)
  beta = f32[C] parameter(2)
  z = f32[] constant(0)
  n = f32[] constant(0.01)
  ns = f32[R] broadcast(n), dimensions={}
  s = f32[R] reduce(x, z), dimensions={1}, to_apply=sum
  mean = f32[R] multiply(s, ns)
  means = f32[R,C] broadcast(mean), dimensions={0}
  d = f32[R,C] subtract(x, means)
  dd = f32[R,C] multiply(d, d)
  v = f32[R] reduce(dd, z), dimensions={1}, to_apply=sum
  var = f32[R] multiply(v, ns)
  vare = f32[R] add(var, ns)
  q = f32[R] rsqrt(vare)
  qs = f32[R,C] broadcast(q), dimensions={0}
  y = f32[R,C] multiply(d, qs)
  gs = f32[R,C] broadcast(gamma), dimensions={1}
  bs = f32[R,C] broadcast(beta), dimensions={1}
  yg = f32[R,C] multiply(y, gs)
  ROOT o = f32[R,C] add(yg, bs)"""

ADAM = """
  p = f32[R] parameter(0)
  g = f32[R] parameter(1)
  m = f32[R] parameter(2)
  v = f32[R] parameter(3)
  a = f32[] constant(0.9)
  aa = f32[R] broadcast(a), dimensions={}
  b = f32[] constant(0.1)
  bs = f32[R] broadcast(b), dimensions={}
  ma = f32[R] multiply(m, aa)
  gb = f32[R] multiply(g, bs)
  mn = f32[R] add(ma, gb)
  va = f32[R] multiply(v, aa)
  gg = f32[R] multiply(g, g)
  ggb = f32[R] multiply(gg, bs)
  vn = f32[R] add(va, ggb)
  r = f32[R] sqrt(vn)
  re = f32[R] add(r, bs)
  u = f32[R] divide(mn, re)
  ub = f32[R] multiply(u, bs)
  pn = f32[R] subtract(p, ub)
  ROOT t = (f32[R], f32[R], f32[R]) tuple(pn, mn, vn)"""
DONATED = "{ {0}: (0, {}, may-alias), {1}: (2, {}, may-alias), {2}: (3, {}, may-alias) }"


def kernels(body: str, rows: int, columns: int = 1, alias: str = "{}") -> list[HloInstruction]:
    """Return the kernels of the fused program, which is checked to take no more memory than before."""
    text = body.replace("R,C", f"{rows},{columns}").replace("[R]", f"[{rows}]")
    text = text.replace("[C]", f"[{columns}]")
    header = f"HloModule t, input_output_alias={alias}"
    module: HloModule = parse_module(f"{header}\n{REDUCERS}\nENTRY e {{{text}\n}}\n")
    module.stage = Stage.OPTIMIZED
    schedule_module(module)
    before = device_bytes(module)
    PriorityFusion().run(module)
    assert device_bytes(module) <= before
    quiet = (Opcode.PARAMETER, Opcode.CONSTANT, Opcode.TUPLE, Opcode.GET_TUPLE_ELEMENT)
    return [x for x in module.entry.instructions if x.opcode not in quiet]


@pytest.mark.parametrize(("rows", "columns"), [(1024, 512), (4096, 64), (64, 16)])
@pytest.mark.parametrize("body", [SOFTMAX, SOFTMAX_GRADIENT, LAYER_NORM])
def test_rows_are_normalized_in_one_kernel(body: str, rows: int, columns: int) -> None:
    (one,) = kernels(body, rows, columns)
    assert '"row"' in one.annotations.backend_config


@pytest.mark.parametrize("size", [64, 4096, 65536, 1 << 20, 1 << 24])
def test_an_update_is_one_kernel(size: int) -> None:
    """The size of the arrays does not matter.

    The seven arrays of one kernel are as near in memory as three arrays of each of three kernels.
    """
    (one,) = kernels(ADAM, size, alias=DONATED)
    assert one.opcode is Opcode.FUSION
    assert len(one.to_apply.root.operands) == 3


def test_a_row_that_memory_does_not_hold_is_not_kept() -> None:
    """Eight long rows leave no memory for a ninth row that keeps exponentials.

    There are two kernels, which need no such row.
    """
    found = kernels(SOFTMAX, 8, 32000)
    assert [x.opcode for x in found] == [Opcode.FUSION, Opcode.FUSION]
