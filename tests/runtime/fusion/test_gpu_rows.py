"""Rows that a GPU's multiprocessor holds are read once: softmax is one kernel on the machines with GPUs."""

from __future__ import annotations

import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.machine_option import described
from runtime.program.records.rows import RowKernel
from runtime.program.thunks import KernelThunk, traverse
from spmd.text.parser import parse_module

SOFTMAX = """HloModule softmax
largest {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }}
sum {{ c = f32[] parameter(0)
  d = f32[] parameter(1)
  ROOT s = f32[] add(c, d) }}
ENTRY main {{
  x = {kind}[{rows},{row}] parameter(0)
  wide = f32[{rows},{row}] convert(x)
  least = f32[] constant(-inf)
  m = f32[{rows}] reduce(wide, least), dimensions={{1}}, to_apply=largest
  ms = f32[{rows},{row}] broadcast(m), dimensions={{0}}
  y = f32[{rows},{row}] subtract(wide, ms)
  e = f32[{rows},{row}] exponential(y)
  zero = f32[] constant(0)
  t = f32[{rows}] reduce(e, zero), dimensions={{1}}, to_apply=sum
  ts = f32[{rows},{row}] broadcast(t), dimensions={{0}}
  q = f32[{rows},{row}] divide(e, ts)
  ROOT z = {kind}[{rows},{row}] convert(q)
}}
"""


@pytest.mark.parametrize("machine", ["dgx-h200", "dgx-h100"])
@pytest.mark.parametrize(
    ("kind", "rows", "row"), [("f32", 65536, 4096), ("bf16", 131072, 1024), ("f32", 8192, 16384)]
)
def test_softmax_is_one_kernel(machine: str, kind: str, rows: int, row: int) -> None:
    module = parse_module(SOFTMAX.format(kind=kind, rows=rows, row=row))
    executable = compile_module(module, 1, CompileOptions(machine=described(machine)))
    kernels = [t.kernel for t in traverse(executable.program.thunks) if isinstance(t, KernelThunk)]
    assert [type(kernel) for kernel in kernels] == [RowKernel]
