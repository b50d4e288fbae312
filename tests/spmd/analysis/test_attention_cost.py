"""Flops of fused attention: two products over pairs forwards, five backwards, half of them under a causal mask."""

from __future__ import annotations

import pytest

from spmd.analysis.cost import op_cost
from spmd.text.parser import parse_module

B, H, S, T, D = 2, 8, 64, 96, 16
CUDNN = (
    '{"cudnn_fmha_backend_config":{"fmha_scale":2,"intermediate_tensor_shape":{"element_type":"BF16",'
    '"dimensions":["2","8","64","96"],"tuple_shapes":[]},"mask_type":"MASK"}}'
)


def flops(target: str, q: str, k: str, config: str) -> tuple[float, float]:
    module = parse_module(f"""
HloModule m
ENTRY e {{
  q = bf16[{q}] parameter(0)
  k = bf16[{k}] parameter(1)
  ROOT r = (bf16[{q}], u8[0]) custom-call(q, k, k), custom_call_target="{target}", backend_config={config}
}}""")
    cost = op_cost(module.entry.root)
    return cost.flops, cost.transcendentals


@pytest.mark.parametrize(("mask", "share"), [(0, 1.0), (1, 1.0), (2, 0.5), (3, 0.5)])
@pytest.mark.parametrize(("name", "products"), [("forward", 2), ("backward", 5)])
def test_transformer_engine(name: str, products: int, mask: int, share: float) -> None:
    config = f"{{mask_type = {mask} : i64, qkv_layout = 9 : i64}}"
    found = flops(f"te_fused_attn_{name}_ffi", f"{B},{S},{H},{D}", f"{B},{T},2,{D}", config)
    pairs = B * H * S * T * share
    assert found == (2 * products * pairs * D, pairs)


@pytest.mark.parametrize(
    ("mask", "share"), [("NO_MASK", 1.0), ("CAUSAL", 0.5), ("PADDING_CAUSAL", 0.5)]
)
@pytest.mark.parametrize(("name", "products"), [("", 2), ("Backward", 5)])
def test_cudnn(name: str, products: int, mask: str, share: float) -> None:
    config = CUDNN.replace("MASK", mask)
    found = flops(f"__cudnn$fmhaSoftmax{name}", f"{B},{H},{S},{D}", f"{B},{H},{T},{D}", config)
    pairs = B * H * S * T * share
    assert found == (2 * products * pairs * D, pairs)
