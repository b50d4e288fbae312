"""Triangular solves, radix sorts and top-k of GPU libraries against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE"])
def test_triangular_solve(run, transpose: str) -> None:
    a = np.tril(RNG.standard_normal((2, 3, 3))).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
    b = RNG.standard_normal((2, 3, 2)).astype(np.float32)
    config = f'{{"left_side":true,"lower":true,"unit_diagonal":false,"transpose_a":"{transpose}"}}'
    text = f"""
ENTRY main {{
  a = f32[2,3,3] parameter(0)
  b = f32[2,3,2] parameter(1)
  z = (f32[2,3,2], s8[32]) custom-call(a, b), custom_call_target="__cublas$triangularSolve", backend_config={config}
  ROOT r = f32[2,3,2] get-tuple-element(z), index=0
}}"""
    matrix = a if transpose == "NO_TRANSPOSE" else np.swapaxes(a, 1, 2)
    np.testing.assert_allclose(run(text, a, b)[0], np.linalg.solve(matrix, b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("descending", [False, True])
def test_radix_sort_of_pairs(run, descending: bool) -> None:
    """Keys in total order (-0 before 0); equal keys keep their order."""
    keys = np.array([[3, -0.0, 1, 0.0, 1], [2, 2, -1, 5, -1]], np.float32)
    values = np.arange(10, dtype=np.int32).reshape(2, 5)
    text = f"""
ENTRY main {{
  k = f32[2,5] parameter(0)
  v = s32[2,5] parameter(1)
  z = (f32[2,5], s32[2,5], u8[128]) custom-call(k, v), custom_call_target="__cub$DeviceRadixSort", backend_config={{"descending":{str(descending).lower()}}}
  r = f32[2,5] get-tuple-element(z), index=0
  s = s32[2,5] get-tuple-element(z), index=1
  ROOT t = (f32[2,5], s32[2,5]) tuple(r, s)
}}"""
    found, order = run(text, keys, values)
    up = [[1, 3, 2, 4, 0], [2, 4, 0, 1, 3]]
    down = [[0, 2, 4, 3, 1], [3, 0, 1, 2, 4]]
    places = np.array(down if descending else up)
    np.testing.assert_array_equal(found, np.take_along_axis(keys, places, 1))
    np.testing.assert_array_equal(order, np.take_along_axis(values, places, 1))


@pytest.mark.parametrize("direction", ["GT", "LT"])
def test_top_k(run, direction: str) -> None:
    x = RNG.permutation(24).astype(np.float32).reshape(2, 12)
    text = f"""
order {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction={direction}
}}

ENTRY main {{
  x = f32[2,12] parameter(0)
  z = (f32[2,3], s32[2,3]) custom-call(x), custom_call_target="__gpu$TopK", called_computations={{order}}
  v = f32[2,3] get-tuple-element(z), index=0
  i = s32[2,3] get-tuple-element(z), index=1
  ROOT t = (f32[2,3], s32[2,3]) tuple(v, i)
}}"""
    values, places = run(text, x)
    want = np.argsort(-x if direction == "GT" else x, axis=1)[:, :3]
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))
