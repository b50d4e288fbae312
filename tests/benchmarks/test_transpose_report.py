"""The transpose report: what counts as a transpose, what as a copy, and how often."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.partitioning.transpose_report import (
    Move,
    Row,
    Total,
    failures,
    measure,
    our_moves,
    peer_moves,
    total,
)
from spmd.hlo import Stage
from spmd.text.parser import parse_module
from tests.paths import CASES

PEER = """HloModule peer
body {
  s = (s32[], f32[4,6]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4,6]{1,0} get-tuple-element(s), index=1
  moved = f32[4,6]{0,1} copy(x)
  same = f32[6,4]{1,0} transpose(moved), dimensions={1,0}
  back = f32[4,6]{1,0} transpose(same), dimensions={1,0}
  ROOT r = (s32[], f32[4,6]{1,0}) tuple(next, back)
}
condition {
  s = (s32[], f32[4,6]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  p = f32[4,6]{1,0} parameter(0)
  u = f32[4,1]{1,0} parameter(1)
  kept = f32[4,6]{1,0} copy(p)
  unit = f32[4,1]{0,1} copy(u)
  zero = s32[] constant(0)
  init = (s32[], f32[4,6]{1,0}) tuple(zero, kept)
  ROOT loop = (s32[], f32[4,6]{1,0}) while(init), condition=condition, body=body
}
"""


def test_layouts_tell_what_xla_moves() -> None:
    """A transpose that its layouts undo is free; a change of order among sizes of 1 is a mere copy."""
    assert peer_moves(parse_module(PEER)) == [
        Move("moved", True, 96, 5),
        Move("back", True, 96, 5),
        Move("kept", False, 96, 1),
        Move("unit", False, 16, 1),
    ]


@pytest.mark.parametrize(
    ("program", "moves"),
    [
        # read as it lies by the product, in another order by the sum, rearranged for the reshape
        ("ROOT r = f32[6,6] dot(t, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}", []),
        ("ROOT r = f32[6,4] add(t, q)", [Move("r", True, 96, 1)]),
        ("c = f32[24] reshape(t)  ROOT r = f32[24] negate(c)", [Move("c", True, 96, 1)]),
        ("b = f32[6,4,3] broadcast(t), dimensions={0,1}  ROOT r = f32[6,4,3] negate(b)",
         [Move("r", True, 96, 1)]),
        ("ROOT r = f32[6,4] negate(q)", []),
    ],
)  # fmt: skip
def test_ours_are_what_thunks_read(program: str, moves: list[Move]) -> None:
    text = f"""HloModule ours
ENTRY main {{
  p = f32[4,6] parameter(0)
  q = f32[6,4] parameter(1)
  t = f32[6,4] transpose(p), dimensions={{1,0}}
  {program.replace("  ", chr(10) + "  ")}
}}
"""
    module = parse_module(text)
    module.stage = Stage.OPTIMIZED
    assert our_moves(module) == moves


def test_totals_and_bounds() -> None:
    found = total([Move("a", True, 8, 3), Move("b", False, 5, 1)])
    assert found == Total(1, 24, 1, 5)
    assert failures(Row("total", found, found)) == []
    assert failures(Row("total", found, Total(2, 10))) == [
        "29 bytes moved by them, XLA moves 10",
    ]
    assert failures(Row("total", found, Total(1, 100))) == [
        "2 transposes and copies, XLA has 1",
    ]


def test_a_case_measured(tmp_path: Path) -> None:
    """XLA's program stands in for itself: any module with layouts will do."""
    case = tmp_path / "case"
    case.mkdir()
    (case / "module.hlo").write_text((CASES / "mlp_fsdp8" / "module.hlo").read_text())
    (case / "peer.hlo").write_text(PEER)
    (case / "case.json").write_text(json.dumps({"num_partitions": 8}))
    ours, peer = measure(case)
    assert total(peer).transposes == 2
    assert all(move.bytes for move in ours)
