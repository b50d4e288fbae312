"""Loops: what they carry, and where what they read slice by slice is gathered."""

from __future__ import annotations

import numpy as np

from partitioner.ops.control_flow import scanned_dimensions
from spmd.analysis.cost import module_cost
from spmd.hlo import Opcode
from spmd.text.parser import parse_module
from tests.differential.equivalence import check_equivalence

SCAN = """
body {
  s = (s32[], f32[4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = f32[4] get-tuple-element(s), index=1
  xs = f32[8,4] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  x = f32[1,4] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,4}
  row = f32[4] reshape(x)
  sum = f32[4] add(c, row)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[4], f32[8,4]) tuple(next, sum, xs)
}
condition {
  s = (s32[], f32[4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY e {
  xs = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  c = f32[4] parameter(1)
  i = s32[] constant(0)
  s = (s32[], f32[4], f32[8,4]) tuple(i, c, xs)
  w = (s32[], f32[4], f32[8,4]) while(s), condition=condition, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}"""


def test_the_scanned_dimension_is_found() -> None:
    module = parse_module(SCAN)
    (loop,) = module.entry.with_opcode(Opcode.WHILE)
    assert list(scanned_dimensions(loop)) == [(2, 0)]


def test_an_array_that_the_loop_changes_is_not_scanned() -> None:
    module = parse_module(
        SCAN.replace("tuple(next, sum, xs)", "tuple(next, sum, twice)").replace(
            "one = s32[]", "twice = f32[8,4] add(xs, xs)\n  one = s32[]"
        )
    )
    (loop,) = module.entry.with_opcode(Opcode.WHILE)
    assert list(scanned_dimensions(loop)) == []


def test_what_a_scan_reads_is_gathered_once_before_the_loop() -> None:
    xs = np.arange(32, dtype=np.float32).reshape(8, 4)
    partitioned = check_equivalence(parse_module(SCAN), 4, [xs, np.ones(4, np.float32)])
    collectives = module_cost(partitioned).collectives
    assert {kind: c.executed for kind, c in collectives.items()} == {"all-gather": 1}
