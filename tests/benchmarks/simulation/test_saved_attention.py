"""A step whose forward loop saves the operands of attention: the backward loop computes no projections, values stay."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.simulation.saved_attention import with_saved_attention
from spmd.errors import UnsupportedError
from spmd.evaluator import evaluate
from spmd.hlo import HloComputation, HloModule, Opcode
from spmd.text.parser import parse_module
from spmd.verifier.verifier import verify

_NUMBERS = {"lhs_batch_dimensions": ["0", "2"]}
_CONFIG = json.dumps(
    {
        "cudnn_fmha_backend_config": {
            "fmha_scale": 0.5,
            "mask_type": "CAUSAL",
            "sliding_window_length": 0,
            "bmm1_dot_dimension_numbers": _NUMBERS,
            "bmm2_grad_gemm2_dot_dimension_numbers": _NUMBERS,
        }
    }
)

_TARGET = f'custom_call_target="__cudnn$fmhaSoftmax", backend_config={_CONFIG}'
_CONSTANTS = "\n".join(
    ["  zero = s32[] constant(0)", *(f"  c{i} = s32[] constant({i})" for i in range(3))]
)


def _layer(weights: str, x: str, index: str) -> str:
    """Return the attention of a layer: 1 batch, 5 positions, 2 heads of 3, each weight of 6 x 6."""
    lines = [f"  flat = f32[5,6] reshape({x})"]
    for i, name in enumerate("qkv"):
        lines += [
            f"  w{name}3 = f32[1,1,6,6] dynamic-slice({weights}, {index}, c{i}, zero, zero), dynamic_slice_sizes={{1,1,6,6}}",
            f"  w{name} = f32[6,6] reshape(w{name}3)",
            f"  f{name} = f32[5,6] dot(flat, w{name}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"  {name} = f32[1,5,2,3] reshape(f{name})",
        ]
    lines += [
        f"  call = (f32[1,2,5,3], f32[1,2,5], u8[16]) custom-call(q, k, v), {_TARGET}",
        "  heads = f32[1,2,5,3] get-tuple-element(call), index=0",
        "  beside = f32[1,5,2,3] transpose(heads), dimensions={0,2,1,3}",
        "  out = f32[1,5,6] reshape(beside)",
    ]
    return "\n".join(lines)


def _program(layers: int = 3) -> HloModule:
    forward = f"(s32[], f32[1,5,6], f32[{layers},1,5,6], f32[{layers},3,6,6])"
    text = f"""HloModule step

forward {{
  p = {forward} parameter(0)
{_CONSTANTS}
  i = s32[] get-tuple-element(p), index=0
  x = f32[1,5,6] get-tuple-element(p), index=1
  stack = f32[{layers},1,5,6] get-tuple-element(p), index=2
  w = f32[{layers},3,6,6] get-tuple-element(p), index=3
{_layer("w", "x", "i")}
  y = f32[1,5,6] add(x, out)
  slab = f32[1,1,5,6] reshape(x)
  saved = f32[{layers},1,5,6] dynamic-update-slice(stack, slab, i, zero, zero, zero)
  next = s32[] add(i, c1)
  ROOT r = {forward} tuple(next, y, saved, w)
}}

backward {{
  p = {forward} parameter(0)
{_CONSTANTS}
  i = s32[] get-tuple-element(p), index=0
  total = f32[1,5,6] get-tuple-element(p), index=1
  stack = f32[{layers},1,5,6] get-tuple-element(p), index=2
  w = f32[{layers},3,6,6] get-tuple-element(p), index=3
  last = s32[] constant({layers - 1})
  j = s32[] subtract(last, i)
  slab = f32[1,1,5,6] dynamic-slice(stack, j, zero, zero, zero), dynamic_slice_sizes={{1,1,5,6}}
  x = f32[1,5,6] reshape(slab)
{_layer("w", "x", "j")}
  product = f32[1,5,6] multiply(out, x)
  half = f32[] constant(0.5)
  halves = f32[1,5,6] broadcast(half), dimensions={{}}
  less = f32[1,5,6] multiply(total, halves)
  y = f32[1,5,6] add(less, product)
  next = s32[] add(i, c1)
  ROOT r = {forward} tuple(next, y, stack, w)
}}

condition {{
  p = {forward} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({layers})
  ROOT l = pred[] compare(i, n), direction=LT
}}

ENTRY e {{
  x = f32[1,5,6] parameter(0)
  w = f32[{layers},3,6,6] parameter(1)
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  empty = f32[{layers},1,5,6] broadcast(nothing), dimensions={{}}
  start = {forward} tuple(zero, x, empty, w)
  middle = {forward} while(start), condition=condition, body=forward
  y = f32[1,5,6] get-tuple-element(middle), index=1
  stack = f32[{layers},1,5,6] get-tuple-element(middle), index=2
  again = {forward} tuple(zero, y, stack, w)
  end = {forward} while(again), condition=copy, body=backward
  ROOT z = f32[1,5,6] get-tuple-element(end), index=1
}}"""
    start = text.index("condition {")
    end = text.index("ENTRY")
    copied = text[start:end].replace("condition {", "copy {", 1)
    return parse_module(text[:end] + copied + text[end:])


def _products(body: HloComputation) -> int:
    return len(list(body.with_opcode(Opcode.DOT)))


def test_the_backward_loop_reads_what_the_forward_loop_has_saved() -> None:
    module = _program()
    saved = with_saved_attention(module)
    verify(saved)
    first, second = saved.entry.with_opcode(Opcode.WHILE)
    assert (_products(first.while_body), _products(second.while_body)) == (3, 0)
    rng = np.random.default_rng(3)
    arguments = (rng.normal(size=(1, 5, 6)), rng.normal(size=(3, 3, 6, 6)) / 3)
    floats = [one.astype(np.float32) for one in arguments]
    (expected,), (found,) = evaluate(module, *floats), evaluate(saved, *floats)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_step_without_a_second_computation_is_refused() -> None:
    module = _program()
    (_, second) = module.entry.with_opcode(Opcode.WHILE)
    entry = module.entry
    entry.root = second.operand(0).operand(1)
    entry.remove_unused()
    with pytest.raises(UnsupportedError, match="second time"):
        with_saved_attention(module)
