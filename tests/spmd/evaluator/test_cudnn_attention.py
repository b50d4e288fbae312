"""Tests of cuDNN's fused attention as JAX calls it: softmax written out per query, gradients against differences."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.analysis.cost import module_cost
from spmd.errors import UnsupportedError
from spmd.literal import NDArray

B, S, T, H, G, D = 2, 3, 4, 4, 2, 2
Run = Callable[..., list[NDArray]]
CASES = [
    {},
    {"mask_type": "CAUSAL"},
    {"mask_type": "PADDING"},
    {"mask_type": "PADDING_CAUSAL"},
    {"mask_type": "CAUSAL", "sliding_window_length": 2},
]
LENGTHS = [np.array([2, 3], np.int32), np.array([3, 4], np.int32)]


def shape(array: NDArray) -> str:
    kind = "s32" if array.dtype == np.int32 else "f32"
    return f"{kind}[{','.join(map(str, array.shape))}]"


def call(
    target: str,
    operands: Sequence[NDArray],
    results: Sequence[str],
    settings: dict[str, Any],
    *,
    heads_first: bool = False,
    shardings: Sequence[str] = (),
) -> str:
    """Return an entry whose root is the call."""
    batch = ["0", "1"] if heads_first else ["0", "2"]
    numbers = {"lhs_batch_dimensions": batch}
    config = {"fmha_scale": 0.5, "bmm1_dot_dimension_numbers": numbers} | settings
    config["bmm2_grad_gemm2_dot_dimension_numbers"] = numbers
    text = json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": config})
    given = [f", sharding={each}" if each else "" for each in shardings] or [""] * len(operands)
    lines = [f"p{i} = {shape(x)} parameter({i}){given[i]}" for i, x in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    lines.append(
        f"ROOT r = ({', '.join(results)}) custom-call({names}),"
        f' custom_call_target="__cudnn$fmha{target}", backend_config={text}'
    )
    return "\n".join(lines)


def forward(
    run: Run, q: NDArray, k: NDArray, v: NDArray, bias: NDArray | None, **settings: Any
) -> list[NDArray]:
    lengths = LENGTHS if "PADDING" in settings.get("mask_type", "") else []
    operands = [q, k, v, *([] if bias is None else [bias]), *lengths]
    results = [f"f32[{B},{H},{S},{D}]", f"f32[{B},{H},{S}]", "u8[0]"]
    target = "Softmax" if bias is None else "ScaleBiasSoftmax"
    return run(call(target, operands, results, settings), *operands)[:2]


def sees(settings: dict[str, Any], b: int, i: int, j: int) -> bool:
    mask, window = settings.get("mask_type", ""), settings.get("sliding_window_length", 0)
    inside = "PADDING" not in mask or (i < LENGTHS[0][b] and j < LENGTHS[1][b])
    return inside and ("CAUSAL" not in mask or j <= i) and (not window or j > i - window)


def arrays(rng: np.random.Generator, *heads: int) -> list[NDArray]:
    sizes = {H: S, G: T}
    return [rng.normal(size=(B, sizes[n], n, D)).astype(np.float32) for n in heads]


@pytest.mark.parametrize("settings", CASES)
@pytest.mark.parametrize("biased", [False, True])
def test_forward(
    run: Run, rng: np.random.Generator, settings: dict[str, Any], biased: bool
) -> None:
    q, k, v = arrays(rng, H, G, G)
    bias = rng.normal(size=(1, H, S, T)).astype(np.float32) if biased else None
    out, statistics = forward(run, q, k, v, bias, **settings)
    for b, h, i in np.ndindex(B, H, S):
        g = h // (H // G)
        keys = [j for j in range(T) if sees(settings, b, i, j)]
        added = [0.0 if bias is None else float(bias[0, h, i, j]) for j in keys]
        powers = [
            math.exp(0.5 * float(q[b, i, h] @ k[b, j, g]) + more)
            for j, more in zip(keys, added, strict=True)
        ]
        want = sum(
            (p / sum(powers) * v[b, j, g] for p, j in zip(powers, keys, strict=True)), np.zeros(D)
        )
        np.testing.assert_allclose(out[b, h, i], want, atol=1e-5)
        if keys:
            assert statistics[b, h, i] == pytest.approx(math.log(sum(powers)), abs=1e-5)


@pytest.mark.parametrize("settings", CASES)
@pytest.mark.parametrize("rows", [0, 1, B])
def test_backward(run: Run, rng: np.random.Generator, settings: dict[str, Any], rows: int) -> None:
    """rows: batches of the bias; 0: no bias."""
    q, k, v, dout = arrays(rng, H, G, G, H)
    bias = rng.normal(size=(rows, H, S, T)).astype(np.float32) if rows else None
    out, statistics = forward(run, q, k, v, bias, **settings)
    lengths = LENGTHS if "PADDING" in settings.get("mask_type", "") else []
    given = [] if bias is None else [bias]
    operands = [q, k, v, statistics, dout, *given, out.swapaxes(1, 2), *lengths]
    operands[3] = np.where(np.isfinite(operands[3]), operands[3], np.float32(0))
    heads = [f"f32[{B},{H},{S},{D}]", f"f32[{B},{G},{T},{D}]", f"f32[{B},{G},{T},{D}]"]
    results = [*heads, *map(shape, given), "u8[0]"]
    target = "SoftmaxBackward" if bias is None else "ScaleBiasSoftmaxBackward"
    dq, dk, dv, *rest = run(call(target, operands, results, settings), *operands)
    gradients = [(q, dq.swapaxes(1, 2)), (k, dk.swapaxes(1, 2)), (v, dv.swapaxes(1, 2))]
    if bias is not None:
        gradients.append((bias, rest[0]))
    step = 1e-2
    for x, dx in gradients:
        for place in ((0, 1, 1, 0), tuple(n - 1 for n in x.shape)):
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[tuple(np.minimum(place, np.array(x.shape) - 1))] += sign * step
                others = [moved if a is x else a for a in (q, k, v, bias)]
                found = forward(run, *others, **settings)[0].swapaxes(1, 2)
                ends.append(float((found * dout).sum()))
            at = tuple(np.minimum(place, np.array(x.shape) - 1))
            assert dx[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=5e-3)


def test_a_bias_may_have_no_gradient(run: Run, rng: np.random.Generator) -> None:
    """JAX asks for the gradient of a bias only if all batches share it."""
    q, k, v, dout = arrays(rng, H, G, G, H)
    bias = rng.normal(size=(B, H, S, T)).astype(np.float32)
    out, statistics = forward(run, q, k, v, bias)
    operands = [q, k, v, statistics, dout, bias, out.swapaxes(1, 2)]
    results = [f"f32[{B},{H},{S},{D}]", *[f"f32[{B},{G},{T},{D}]"] * 2]
    found = [
        run(call("ScaleBiasSoftmaxBackward", operands, [*results, *more, "u8[64]"], {}), *operands)
        for more in ([], [shape(bias)])
    ]
    for without, with_gradient in zip(found[0][:3], found[1][:3], strict=True):
        np.testing.assert_array_equal(without, with_gradient)


def test_heads_may_come_first(run: Run, rng: np.random.Generator) -> None:
    q, k, v = arrays(rng, H, G, G)
    want = forward(run, q, k, v, None, mask_type="CAUSAL")[0]
    operands = [x.swapaxes(1, 2) for x in (q, k, v)]
    text = call(
        "Softmax",
        operands,
        [f"f32[{B},{H},{S},{D}]", "u8[16]"],
        {"mask_type": "CAUSAL"},
        heads_first=True,
    )
    np.testing.assert_array_equal(run(text, *map(np.ascontiguousarray, operands))[0], want)


@pytest.mark.parametrize("rows", [0, 1, B])
def test_batches_and_heads_are_sharded_without_communication(
    rng: np.random.Generator, rows: int
) -> None:
    q, k, v = arrays(rng, H, G, G)
    bias = [rng.normal(size=(rows, H, S, T)).astype(np.float32)] if rows else []
    heads = "{devices=[2,1,2,1]<=[4]}"
    of_bias = (
        "{devices=[2,2,1,1]<=[4]}"
        if rows == B
        else "{devices=[1,2,1,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}"
    )
    text = call(
        "ScaleBiasSoftmax" if rows else "Softmax",
        [q, k, v, *bias],
        [f"f32[{B},{H},{S},{D}]", f"f32[{B},{H},{S}]", "u8[0]"],
        {"mask_type": "CAUSAL"},
        shardings=[heads, heads, heads, of_bias][: 3 + len(bias)],
    )
    module = spmd.parse(f"HloModule m\n\nENTRY e {{\n{text}\n}}\n")
    executable = spmd.compile(module, 4)
    assert module_cost(executable.module).wire_bytes == 0
    for got, want in zip(
        executable.run(q, k, v, *bias), spmd.evaluate(module, q, k, v, *bias), strict=True
    ):
        np.testing.assert_allclose(np.asarray(got), want, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"mask_type": "ALIBI"},
        {"dropout_rate": 0.1},
        {"max_seg_per_batch": 2},
        {"is_paged_attention": True},
        {"bmm1_dot_dimension_numbers": {"lhs_batch_dimensions": ["0", "3"]}},
    ],
)
def test_what_is_not_evaluated_is_named(run: Run, settings: dict[str, Any]) -> None:
    zeros = [np.zeros((B, n, h, D), np.float32) for n, h in ((S, H), (T, G), (T, G))]
    with pytest.raises(
        UnsupportedError,
        match=f"{'lhs_batch' if 'bmm1' in str(settings) else next(iter(settings))}",
    ):
        forward(run, *zeros, None, **settings)
