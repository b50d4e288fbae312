"""Shardings whose strides do not nest: 6 devices as 2 x 3 and as 3 x 2, 12 as 3 x 4 and 4 x 3."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.text.parser import parse_module
from tests.differential.equivalence import check_equivalence

GSPMD = """ENTRY e {{
  a = f32[{rows},8] parameter(0), sharding={{devices=[2,3]<=[6]}}
  b = f32[{rows},8] parameter(1), sharding={{devices=[2,3]<=[3,2]T(1,0)}}
  s = f32[{rows},8] add(a, b)
  c = f32[{rows},8] custom-call(s), custom_call_target="Sharding", sharding={{devices=[3,2]<=[6]}}
  n = f32[{rows},8] negate(c)
  ROOT r = (f32[{rows},8], f32[{rows},8]) tuple(n, s), sharding={{{{devices=[3,1,2]<=[6] last_tile_dim_replicate}}, {{devices=[2,1,3]<=[6] last_tile_dim_replicate}}}}
}}"""

SHARDY = """HloModule m, frontend_attributes={xla.sdy.meshes={one = #sdy.mesh<["x"=3, "y"=4]>, two = #sdy.mesh<["a"=4, "b"=3]>}}
ENTRY e {
  p = f32[12,6] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@one, [{\\"x\\"}, {\\"y\\"}]>"}
  q = f32[6,12] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@two, [{\\"b\\"}, {\\"a\\"}]>"}
  d = f32[12,12] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[12,12] custom-call(d), custom_call_target="xla.sdy.FuncResultSharding", frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@two, [{\\"a\\"}, {}]>]>"}
}"""


@pytest.mark.parametrize("rows", [6, 7, 1])
def test_two_factorizations_of_six_devices(rows: int) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((rows, 8)).astype(np.float32) for _ in range(2)]
    check_equivalence(parse_module(GSPMD.format(rows=rows)), 6, inputs)


def test_two_meshes_of_twelve_devices() -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in ((12, 6), (6, 12))]
    check_equivalence(parse_module(SHARDY), 12, inputs)


def test_both_sides_keep_their_own_tiles() -> None:
    module = parse_module(GSPMD.format(rows=6))
    program = check_equivalence(module, 6, [np.ones((6, 8), np.float32)] * 2)
    assert [str(p.shape) for p in program.entry.parameters] == ["f32[3,3]", "f32[3,3]"]
    assert "f32[2,8]" in str(program.entry.root.shape)
