"""Fused attention against softmax written out per query; its gradient against differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spmd.errors import UnsupportedError

B, S, H, G, D = 2, 3, 4, 2, 2


def call(direction, operands, results, **settings):
    config = {
        "bias_type": 0,
        "dropout_probability": "0.000000e+00",
        "mask_type": 0,
        "qkv_layout": 9,
    }
    config |= {"scaling_factor": "5.000000e-01", "window_size_left": -1} | settings
    text = ", ".join(f"{k} = {v} : i64" for k, v in config.items())
    heads = [f"p{i} = {shape} parameter({i})" for i, shape in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    target = f'custom_call_target="te_fused_attn_{direction}_ffi", backend_config={{{text}}}'
    return "\n".join([*heads, f"ROOT r = ({', '.join(results)}) custom-call({names}), {target}"])


Q, KV = f"f32[{B},{S},{H},{D}]", f"f32[{B},{S},{G},{D}]"
ENDS = [np.array([0, 2, 5], np.int32)] * 2
EMPTY, SEED = np.zeros(0, np.float32), np.zeros(2, np.uint32)


def forward(run, q, k, v, **settings):
    body = call(
        "forward",
        [Q, KV, KV, "f32[0]", "u32[2]", f"s32[{B + 1}]", f"s32[{B + 1}]"],
        [Q, f"f32[{B},{H},{S},1]", "u32[2,4]", "u8[1]"],
        **settings,
    )
    return run(body, q, k, v, EMPTY, SEED, *ENDS)[:2]


def visible(mask, b, i, j):
    inside = mask not in (1, 3) or (i < (2, 3)[b] and j < (2, 3)[b])
    return inside and (mask not in (2, 3) or j <= i)


@pytest.mark.parametrize("mask", [0, 1, 2, 3])
def test_forward(run, rng, mask):
    q, k, v = (rng.normal(size=(B, S, n, D)).astype(np.float32) for n in (H, G, G))
    out, statistics = forward(run, q, k, v, mask_type=mask)
    for b, i, h in np.ndindex(B, S, H):
        keys = [j for j in range(S) if visible(mask, b, i, j)]
        g = h // (H // G)
        powers = [math.exp(0.5 * float(q[b, i, h] @ k[b, j, g])) for j in keys]
        want = sum(
            (p / sum(powers) * v[b, j, g] for p, j in zip(powers, keys, strict=True)), np.zeros(D)
        )
        np.testing.assert_allclose(out[b, i, h], want, atol=1e-5)
        if keys:
            assert statistics[b, h, i, 0] == pytest.approx(math.log(sum(powers)), abs=1e-5)


@pytest.mark.parametrize("mask", [0, 2, 3])
@pytest.mark.parametrize("packed", [False, True])
def test_backward(run, rng, mask, packed):
    q, k, v, dout = (rng.normal(size=(B, S, n, D)).astype(np.float32) for n in (H, G, G, H))
    out, statistics = forward(run, q, k, v, mask_type=mask)
    kv, first = (np.stack([k, v], 2), f"f32[{B},{S},2,{G},{D}]") if packed else (k, KV)
    second, given = ("f32[0]", EMPTY) if packed else (KV, v)
    body = call(
        "backward",
        [Q, first, second, "f32[0]", f"f32[{B},{H},{S},1]", "u32[2,4]", Q, Q, "s32[3]", "s32[3]"],
        [Q, first, second, "f32[0]", "u8[1]"],
        mask_type=mask,
        qkv_layout=7 if packed else 9,
    )
    state = np.zeros((2, 4), np.uint32)
    dq, dk, dv, *_ = run(body, q, kv, given, EMPTY, statistics, state, out, dout, *ENDS)
    if packed:
        dk, dv = dk[:, :, 0], dk[:, :, 1]
    step = 1e-2
    for x, dx, place in [(q, dq, (0, 1, 1, 0)), (k, dk, (1, 0, 1, 1)), (v, dv, (1, 1, 0, 0))]:
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            arguments = [moved if a is x else a for a in (q, k, v)]
            ends.append(float((forward(run, *arguments, mask_type=mask)[0] * dout).sum()))
        assert dx[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=5e-3)


@pytest.mark.parametrize(
    "setting", [{"bias_type": 1}, {"mask_type": 5}, {"dropout_probability": "1.000000e-01"}]
)
def test_what_has_no_reference_is_refused(run, setting):
    zeros = [np.zeros((B, S, n, D), np.float32) for n in (H, G, G)]
    with pytest.raises(UnsupportedError, match="fused attention with"):
        forward(run, *zeros, **setting)
