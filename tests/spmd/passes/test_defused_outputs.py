"""Outputs of a per-device program that a fusion computes keep their sharding when the fusion is opened."""

from __future__ import annotations

import numpy as np

from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.text.parser import parse_module

_FUSED_OUTPUT = """
HloModule fused_output, num_partitions=2

negated {
  p = f32[3,4] parameter(0)
  ROOT n = f32[3,4] negate(p)
}

ENTRY main {
  x = f32[3,4] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT out = f32[3,4] fusion(x), kind=kLoop, calls=negated, sharding={devices=[2,1]<=[2]}
}
"""


def test_root_fusion_keeps_its_sharding() -> None:
    module = parse_module(_FUSED_OUTPUT)
    executable = compile_module(module, 2, CompileOptions(partitioned=True))
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    (out,) = executable.run(x)
    np.testing.assert_array_equal(out, -x)
