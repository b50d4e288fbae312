"""Conditionals and loops in the functions that maps, reductions, windows, scatters and sorts apply to elements."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from launch.options import CompileOptions
from launch.pipeline import stages
from spmd.hlo import Opcode
from spmd.text.parser import parse_module

#: half(x, y): half of the larger, else y. Branches that a select may stand for.
BRANCH = """
larger { t = (f32[], f32[]) parameter(0) x = f32[] get-tuple-element(t), index=0 k = f32[] constant(0.5)
  ROOT h = f32[] multiply(x, k) }
other { t = (f32[], f32[]) parameter(0) ROOT y = f32[] get-tuple-element(t), index=1 }
half { x = f32[] parameter(0) y = f32[] parameter(1) q = pred[] compare(x, y), direction=GT
  t = (f32[], f32[]) tuple(x, y) ROOT c = f32[] conditional(q, t, t), true_computation=larger, false_computation=other }
"""
#: half(x, y): x, halved until y, counted up, is 3. It runs a number of times that the elements say.
LOOP = """
body { s = (f32[], f32[]) parameter(0) i = f32[] get-tuple-element(s), index=0 x = f32[] get-tuple-element(s), index=1
  one = f32[] constant(1) j = f32[] add(i, one) k = f32[] constant(0.5) h = f32[] multiply(x, k)
  ROOT t = (f32[], f32[]) tuple(j, h) }
more { s = (f32[], f32[]) parameter(0) i = f32[] get-tuple-element(s), index=0 n = f32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
half { x = f32[] parameter(0) y = f32[] parameter(1) s = (f32[], f32[]) tuple(y, x)
  w = (f32[], f32[]) while(s), condition=more, body=body ROOT h = f32[] get-tuple-element(w), index=1 }
"""
#: The loop ends for those elements alone that choose to enter it.
LOOP_IN_BRANCH = """
body { s = (f32[], f32[]) parameter(0) i = f32[] get-tuple-element(s), index=0 x = f32[] get-tuple-element(s), index=1
  j = f32[] add(i, i) k = f32[] constant(0.5) h = f32[] multiply(x, k) ROOT t = (f32[], f32[]) tuple(j, h) }
more { s = (f32[], f32[]) parameter(0) i = f32[] get-tuple-element(s), index=0 n = f32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
looped { s = (f32[], f32[]) parameter(0) w = (f32[], f32[]) while(s), condition=more, body=body
  ROOT h = f32[] get-tuple-element(w), index=1 }
other { t = (f32[], f32[]) parameter(0) ROOT y = f32[] get-tuple-element(t), index=1 }
half { x = f32[] parameter(0) y = f32[] parameter(1) none = f32[] constant(0) q = pred[] compare(y, none), direction=GT
  s = (f32[], f32[]) tuple(y, x) ROOT c = f32[] conditional(q, s, s), true_computation=looped, false_computation=other }
"""
FUNCTIONS = {"branch": BRANCH, "loop": LOOP, "loop_in_branch": LOOP_IN_BRANCH}
BEFORE = """
before { a = f32[] parameter(0) b = f32[] parameter(1) u = f32[] constant(1.5) l = f32[] call(a, u), to_apply=half
  r = f32[] call(b, u), to_apply=half ROOT o = pred[] compare(l, r), direction=LT }
"""

ENTRIES = {
    "map": "r = f32[8,6] map(x, x), dimensions={0,1}, to_apply=half",
    "reduce": "r = f32[8] reduce(x, z), dimensions={1}, to_apply=half",
    "reduce-window": "r = f32[8,3] reduce-window(x, z), window={size=1x2 stride=1x2}, to_apply=half",
    "scatter": """r = f32[8,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=half""",
    "select-and-scatter": """r = f32[8,6] select-and-scatter(x, v, z), window={size=1x2 stride=1x2}, select=before,
      scatter=half""",
    "sort": "r = f32[8,6] sort(x), dimensions={1}, is_stable=true, to_apply=before",
}


def program(function: str, entry: str) -> str:
    return f"""HloModule m
{FUNCTIONS[function]}{BEFORE}
ENTRY main {{
  x = f32[8,6] parameter(0), sharding={{devices=[2,1]<=[2]}}
  u = f32[2,6] parameter(1)
  v = f32[8,3] parameter(2)
  i = s32[2,1] constant({{{{1}},{{4}}}})
  z = f32[] constant(1)
  ROOT {ENTRIES[entry]}
}}
"""


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_as_evaluated(function: str, entry: str) -> None:
    module = parse_module(program(function, entry))
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.normal(0, 3, p.dims), np.float32) for p in module.entry.parameters]
    (want,) = spmd.evaluate(module, *arrays)
    (got,) = spmd.compile(module, devices=2).run(*arrays)
    np.testing.assert_array_equal(got, want)
    assert np.isfinite(want).all()
    assert len(np.unique(want)) > 1


@pytest.mark.parametrize("entry", ENTRIES)
def test_branches_that_may_run_become_selects(entry: str) -> None:
    module = parse_module(program("branch", entry))
    *_, (_, compilation) = stages(module, 2, CompileOptions())
    assert all(x.opcode is not Opcode.CONDITIONAL for x in compilation.module.all_instructions())
