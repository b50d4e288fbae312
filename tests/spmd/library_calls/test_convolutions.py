"""cuDNN calls against sums over every pair of input and filter elements that meet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from spmd.errors import UnsupportedError

RNG = np.random.default_rng(6)

#: Window text; groups; sizes of input, filter and output along the two spatial dimensions.
CASES = {
    "plain": ("size=3x2", 1, (5, 4), (3, 2), (3, 3)),
    "strides": ("size=3x2 stride=2x3 pad=1_0x0_2", 1, (6, 7), (3, 2), (3, 3)),
    "dilated": ("size=2x2 pad=1_1x0_1 rhs_dilate=2x3", 1, (5, 6), (2, 2), (5, 4)),
    "groups": ("size=3x2 stride=2x1 pad=1_1x0_0", 2, (5, 4), (3, 2), (3, 3)),
    "reversed": ("size=3x2 pad=1_1x0_0 rhs_reversal=1x1", 1, (5, 4), (3, 2), (5, 3)),
}
BATCH, INPUTS, OUTPUTS = 2, 4, 6


def numbers(text: str, name: str, default: tuple[int, int]) -> tuple[int, int]:
    for word in text.split():
        if word.startswith(f"{name}="):
            first, second = word.removeprefix(f"{name}=").split("x")
            return int(first.split("_")[0]), int(second.split("_")[0])
    return default


def meetings(case: str) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Yield places (input [b,h,w,f], filter [o,h,w,i], output [b,h,w,f]) of every product of the forward convolution."""
    window, groups, insize, kernel, outsize = CASES[case]
    stride, pad = numbers(window, "stride", (1, 1)), numbers(window, "pad", (0, 0))
    dilation = numbers(window, "rhs_dilate", (1, 1))
    turned = numbers(window, "rhs_reversal", (0, 0))
    for p in product(*map(range, outsize)):
        for k in product(*map(range, kernel)):
            taps = [n - 1 - i if r else i for i, n, r in zip(k, kernel, turned, strict=True)]
            at = tuple(p[d] * stride[d] + taps[d] * dilation[d] - pad[d] for d in range(2))
            if not all(0 <= at[d] < insize[d] for d in range(2)):
                continue
            for b, o, i in product(range(BATCH), range(OUTPUTS), range(INPUTS // groups)):
                group = o // (OUTPUTS // groups)
                f = group * (INPUTS // groups) + i
                yield (b, *at, f), (o, *k, i), (b, *p, o)


def arrays(case: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    _, groups, insize, kernel, outsize = CASES[case]
    x = RNG.standard_normal((BATCH, *insize, INPUTS)).astype(np.float32)
    w = RNG.standard_normal((OUTPUTS, *kernel, INPUTS // groups)).astype(np.float32)
    y = RNG.standard_normal((BATCH, *outsize, OUTPUTS)).astype(np.float32)
    return x, w, y


def call(kind: str, case: str, first: np.ndarray, second: np.ndarray, result: np.ndarray) -> str:
    window, groups, *_ = CASES[case]
    grouped = f", feature_group_count={groups}" if groups > 1 else ""
    shapes = [f"f32[{','.join(map(str, x.shape))}]" for x in (first, second, result)]
    return f"""
ENTRY main {{
  x = {shapes[0]} parameter(0)
  y = {shapes[1]} parameter(1)
  z = ({shapes[2]}, u8[0]) custom-call(x, y), window={{{window}}}, dim_labels=b01f_o01i->b01f{grouped}, custom_call_target="__cudnn$conv{kind}", backend_config={{"cudnn_conv_backend_config":{{"conv_result_scale":2,"activation_mode":"kNone"}}}}
  ROOT r = {shapes[2]} get-tuple-element(z), index=0
}}"""


@pytest.mark.parametrize("case", CASES)
def test_forward(run, case: str) -> None:
    x, w, y = arrays(case)
    want = np.zeros(y.shape)
    for i, k, o in meetings(case):
        want[o] += float(x[i]) * float(w[k])
    found = run(call("Forward", case, x, w, y), x, w)[0]
    np.testing.assert_allclose(found, 2 * want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_input_gradient(run, case: str) -> None:
    x, w, y = arrays(case)
    want = np.zeros(x.shape)
    for i, k, o in meetings(case):
        want[i] += float(y[o]) * float(w[k])
    found = run(call("BackwardInput", case, y, w, x), y, w)[0]
    np.testing.assert_allclose(found, 2 * want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_filter_gradient(run, case: str) -> None:
    x, w, y = arrays(case)
    want = np.zeros(w.shape)
    for i, k, o in meetings(case):
        want[k] += float(x[i]) * float(y[o])
    found = run(call("BackwardFilter", case, x, y, w), x, y)[0]
    np.testing.assert_allclose(found, 2 * want, rtol=1e-4, atol=1e-4)


ACTIVATIONS = {
    "kNone": lambda x: x,
    "kRelu": lambda x: np.maximum(x, 0),
    "kRelu6": lambda x: np.clip(x, 0, 6),
    "kElu": lambda x: np.where(x < 0, np.expm1(x), x),
    "kLeakyRelu": lambda x: np.where(x < 0, 0.25 * x, x),
}


def with_activation(mode: str) -> str:
    settings = {
        "activation_mode": mode,
        "conv_result_scale": 0.5,
        "side_input_scale": 3,
        "leakyrelu_alpha": 0.25,
    }
    config = json.dumps({"cudnn_conv_backend_config": settings})
    return f"""
ENTRY main {{
  x = f32[2,5,4,4] parameter(0)
  w = f32[6,3,2,4] parameter(1)
  b = f32[6] parameter(2)
  s = f32[2,3,3,6] parameter(3)
  z = (f32[2,3,3,6], u8[8]) custom-call(x, w, b, s), window={{size=3x2}}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBiasActivationForward", backend_config={config}
  ROOT r = f32[2,3,3,6] get-tuple-element(z), index=0
}}"""


@pytest.mark.parametrize("mode", ACTIVATIONS)
def test_bias_side_input_and_activation(run, mode: str) -> None:
    x, w, side = arrays("plain")
    bias = RNG.standard_normal(OUTPUTS).astype(np.float32)
    total = np.zeros(side.shape)
    for i, k, o in meetings("plain"):
        total[o] += float(x[i]) * float(w[k])
    want = ACTIVATIONS[mode](0.5 * total + 3 * side + bias)
    found = run(with_activation(mode), x, w, bias, side)[0]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_an_activation_that_is_not_known_is_refused(run) -> None:
    x, w, side = arrays("plain")
    with pytest.raises(UnsupportedError, match="activation_mode='kSwish'"):
        run(with_activation("kSwish"), x, w, np.zeros(6, np.float32), side)
