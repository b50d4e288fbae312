"""convolution against a loop over output elements."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd.evaluator import evaluate
from spmd.ops.window import WindowDimension
from spmd.text.parser import parse_module


def naive(x, kernel, dims, feature_groups, batch_groups):
    """x [b, y, x, f], kernel [y, x, i, o] -> [b, y, x, o], one multiplication at a time."""
    batch, *spatial, features = x.shape
    *_, inner, outputs = kernel.shape
    out_spatial = tuple(d.output_size(n) for d, n in zip(dims, spatial, strict=True))
    result = np.zeros((batch // batch_groups, *out_spatial, outputs), x.dtype)
    for b, oy, ox, o in np.ndindex(result.shape):
        image = o // (outputs // batch_groups) * (batch // batch_groups) + b
        first = o // (outputs // feature_groups) * (features // feature_groups)
        for ky, kx, i in itertools.product(range(dims[0].size), range(dims[1].size), range(inner)):
            place = []
            for position, k, d in zip((oy, ox), (ky, kx), dims, strict=True):
                at = position * d.stride + k * d.window_dilation - d.padding_low
                place.append(at // d.base_dilation if at % d.base_dilation == 0 else -1)
            if all(0 <= p < n for p, n in zip(place, spatial, strict=True)):
                taps = [
                    d.size - 1 - k if d.reversal else k for k, d in zip((ky, kx), dims, strict=True)
                ]
                result[b, oy, ox, o] += x[image, *place, first + i] * kernel[*taps, i, o]
    return result


dimension = st.builds(
    WindowDimension,
    size=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding_low=st.integers(-1, 2),
    padding_high=st.integers(-1, 2),
    base_dilation=st.integers(1, 2),
    window_dilation=st.integers(1, 2),
    reversal=st.booleans(),
)


@settings(max_examples=60)
@given(
    st.tuples(dimension, dimension),
    st.sampled_from([(1, 1), (2, 1), (1, 2)]),
    st.sampled_from(["f32", "s8", "bf16"]),
    st.integers(0, 2**31),
)
def test_every_window_form(dims, groups, kind, seed):
    rng = np.random.default_rng(seed)
    feature_groups, batch_groups = groups
    x = rng.integers(-3, 4, (2, 4, 5, 4))
    kernel = rng.integers(-3, 4, (dims[0].size, dims[1].size, 4 // feature_groups, 2))
    want = naive(x, kernel, dims, feature_groups, batch_groups)
    result = {"f32": "f32", "s8": "s32", "bf16": "bf16"}[kind]

    def by(field):
        return "x".join(str(int(getattr(d, field))) for d in dims)

    pads = "x".join(f"{d.padding_low}_{d.padding_high}" for d in dims)
    text = f"""HloModule m
      ENTRY e {{ x = {kind}[2,4,5,4] parameter(0) k = {kind}[{",".join(map(str, kernel.shape))}] parameter(1)
      ROOT r = {result}[{",".join(map(str, want.shape))}] convolution(x, k), window={{size={by("size")} stride={by("stride")}
        pad={pads} lhs_dilate={by("base_dilation")} rhs_dilate={by("window_dilation")} rhs_reversal={by("reversal")}}},
        dim_labels=b01f_01io->b01f, feature_group_count={feature_groups}, batch_group_count={batch_groups} }}"""
    module = parse_module(text)
    dtypes = [p.array_shape.element_type.numpy for p in module.entry.parameters]
    got = evaluate(module, x.astype(dtypes[0]), kernel.astype(dtypes[1]))[0]
    np.testing.assert_array_equal(got.astype(np.int64), want)


def test_dimension_labels(run, rng):
    """The filter gradient's form: features and batch exchanged on the way in and out."""
    x = rng.integers(-3, 4, (2, 4, 5, 3)).astype(np.float32)
    g = rng.integers(-3, 4, (2, 3, 4, 6)).astype(np.float32)
    body = """x = f32[2,4,5,3] parameter(0) g = f32[2,3,4,6] parameter(1)
      ROOT r = f32[2,2,3,6] convolution(x, g), window={size=3x4}, dim_labels=f01b_i01o->01bf"""
    want = np.zeros((2, 2, 3, 6), np.float32)
    for ky, kx in np.ndindex(2, 2):
        want[ky, kx] = np.einsum("nyxc,nyxo->co", x[:, ky : ky + 3, kx : kx + 4], g)
    np.testing.assert_array_equal(run(body, x, g)[0], want)


def test_batches_too_large_for_one_piece(run, monkeypatch, rng):
    from spmd.evaluator import convolution

    monkeypatch.setattr(convolution, "_MAX_ROWS_ELEMENTS", 100)
    x, k = (
        rng.integers(-3, 4, (5, 6, 2)).astype(np.float32),
        rng.integers(-3, 4, (3, 2, 4)).astype(np.float32),
    )
    body = """x = f32[5,6,2] parameter(0) k = f32[3,2,4] parameter(1)
      ROOT r = f32[5,4,4] convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f"""
    want = sum(np.einsum("bxi,io->bxo", x[:, t : t + 4], k[t]) for t in range(3))
    np.testing.assert_array_equal(run(body, x, k)[0], want)
