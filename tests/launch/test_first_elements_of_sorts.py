"""Compiled sorts of which only the first elements are read: topk in the comparator's own order."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from launch.options import CompileOptions
from launch.pipeline import stages
from spmd.hlo import Opcode
from spmd.text.parser import parse_module

ORDERS = {
    "greater": "ROOT r = pred[] compare(a, b), direction=GT",
    "less": "ROOT r = pred[] compare(a, b), direction=LT",
    "total": "ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER",
    "zeros_and_nan_equal": """z = {kind}[] constant(0)  n = {kind}[] constant(nan)
      e = pred[] compare(a, z), direction=EQ  f = pred[] compare(b, z), direction=EQ
      g = {kind}[] select(e, z, a)  h = {kind}[] select(f, z, b)
      i = pred[] compare(g, g), direction=NE  j = pred[] compare(h, h), direction=NE
      k = {kind}[] select(i, n, g)  l = {kind}[] select(j, n, h)
      ROOT r = pred[] compare(k, l), direction=GT, type=TOTALORDER""",
    "then_position": """q = pred[] compare(a, b), direction=GT  e = pred[] compare(a, b), direction=EQ
      p = pred[] compare(c, d), direction=LT  s = pred[] and(e, p)  ROOT r = pred[] or(q, s)""",
}
CASES = [("f32", order) for order in ORDERS]
CASES += [(kind, order) for kind in ("bf16", "f16") for order in ("greater", "zeros_and_nan_equal")]
CASES += [("s32", "less"), ("u8", "greater")]


@pytest.mark.parametrize(("kind", "order"), CASES)
def test_values_positions_and_payload(kind: str, order: str) -> None:
    text = f"""HloModule m
before {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  u = u8[] parameter(4) v = u8[] parameter(5) {ORDERS[order].format(kind=kind)} }}
ENTRY e {{ x = {kind}[2,40,3] parameter(0) i = s32[2,40,3] iota(), iota_dimension=1 y = u8[2,40,3] parameter(1)
  s = ({kind}[2,40,3], s32[2,40,3], u8[2,40,3]) sort(x, i, y), dimensions={{1}}, is_stable=true, to_apply=before
  g0 = {kind}[2,40,3] get-tuple-element(s), index=0 g1 = s32[2,40,3] get-tuple-element(s), index=1
  g2 = u8[2,40,3] get-tuple-element(s), index=2 first = {kind}[2,5,3] slice(g0), slice={{[0:2], [0:5], [0:3]}}
  second = s32[2,4,3] slice(g1), slice={{[0:2], [0:4], [0:3]}} third = u8[1,3,3] slice(g2), slice={{[1:2], [0:3], [0:3]}}
  ROOT t = ({kind}[2,5,3], s32[2,4,3], u8[1,3,3]) tuple(first, second, third) }}"""
    module = parse_module(text)
    rng = np.random.default_rng(0)
    element = module.entry.parameters[0].array_shape.element_type
    x = rng.integers(0, 3, (2, 40, 3)).astype(element.numpy)  # ties
    if element.is_floating:
        x = np.where(rng.random(x.shape) < 0.3, -x, x)
        x[0, 7:9] = np.array(np.nan, x.dtype)
        x[1] = np.minimum(x[1], x.dtype.type(0))  # zeros of both signs are among the first
    y = rng.integers(0, 200, x.shape).astype(np.uint8)
    executable = spmd.compile(module, devices=1)
    for want, got in zip(spmd.evaluate(module, x, y), executable.run(x, y), strict=True):
        assert got.tobytes() == want.tobytes()
    *_, (_, compilation) = stages(module, 1, CompileOptions())
    opcodes = [i.opcode for i in compilation.module.all_instructions()]
    assert Opcode.TOPK in opcodes
    assert Opcode.SORT not in opcodes


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ("s = f32[4,20] sort(x), dimensions={1}, to_apply=one\n ROOT r = f32[4,3] slice(s), slice={[0:4], [0:3]}", "sort"),
        (
            "y = s32[4,20] parameter(1) s = (f32[4,20], s32[4,20]) sort(x, y), dimensions={1}, to_apply=two ROOT r = f32[4,20] get-tuple-element(s), index=0",
            "parameter(2)",
        ),
    ],
)  # fmt: skip
def test_a_result_of_the_program_keeps_its_sharding(body: str, gone: str) -> None:
    """A sharding by the partitioner does not keep the sort as it was."""
    text = f"""HloModule m
one {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }}
two {{ a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }}
ENTRY e {{ x = f32[4,20] parameter(0), sharding={{devices=[2,1]<=[2]}} {body} }}"""
    module = parse_module(text)
    rng = np.random.default_rng(0)
    arrays = [rng.permutation(80).reshape(4, 20).astype(p.array_shape.element_type.numpy) for p in module.entry.parameters]  # fmt: skip
    executable = spmd.compile(module, devices=2)
    for want, got in zip(spmd.evaluate(module, *arrays), executable.run(*arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    *_, (_, compilation) = stages(module, 2, CompileOptions())
    assert gone not in str(compilation.module)
    assert compilation.module.entry.root.sharding is not None
