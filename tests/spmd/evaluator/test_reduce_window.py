"""reduce-window and select-and-scatter against loops over windows and their elements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd.evaluator import evaluate
from spmd.ops.window import WindowDimension
from spmd.text.parser import parse_module


def elements(x, dims, position):
    """The elements under the window at ``position``, in row-major order, padding and holes left out."""
    for offset in itertools.product(*(range(d.size) for d in dims)):
        place = [
            p * d.stride + o * d.window_dilation - d.padding_low
            for p, o, d in zip(position, offset, dims, strict=True)
        ]
        if all(
            a % d.base_dilation == 0 and 0 <= a // d.base_dilation < n
            for a, d, n in zip(place, dims, x.shape, strict=True)
        ):
            yield tuple(a // d.base_dilation for a, d in zip(place, dims, strict=True))


def window_text(dims):
    def by(field):
        return "x".join(str(getattr(d, field)) for d in dims)

    pads = "x".join(f"{d.padding_low}_{d.padding_high}" for d in dims)
    return (
        f"window={{size={by('size')} stride={by('stride')} pad={pads}"
        f" lhs_dilate={by('base_dilation')} rhs_dilate={by('window_dilation')}}}"
    )


dimension = st.builds(
    WindowDimension,
    size=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding_low=st.integers(-1, 3),
    padding_high=st.integers(-1, 3),
    base_dilation=st.integers(1, 3),
    window_dilation=st.integers(1, 2),
)

REDUCERS = """
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }
twice { x = f32[] parameter(0) y = f32[] parameter(1) z = f32[] add(x, x) ROOT r = f32[] add(z, y) }
max { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] maximum(x, y) }
"""
COMBINE = {"add": lambda a, b: a + b, "max": max, "twice": lambda a, b: 2 * a + b}


@settings(max_examples=80)
@given(st.data(), st.tuples(dimension, dimension), st.sampled_from(sorted(COMBINE)))
def test_reduce_window(data, dims, reducer):
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    out = tuple(d.output_size(n) for d, n in zip(dims, shape, strict=True))
    x = np.arange(1, 1 + shape[0] * shape[1], dtype=np.float32).reshape(shape)
    text = f"""HloModule m
      {REDUCERS}
      ENTRY e {{ x = f32[{shape[0]},{shape[1]}] parameter(0) i = f32[] constant(3)
      ROOT r = f32[{out[0]},{out[1]}] reduce-window(x, i), {window_text(dims)}, to_apply={reducer} }}"""
    want = np.empty(out, np.float32)
    for position in np.ndindex(*out):
        total = 3.0
        for place in elements(x, dims, position):
            total = COMBINE[reducer](total, float(x[place]))
        want[position] = total
    np.testing.assert_array_equal(evaluate(parse_module(text), x)[0], want)


@pytest.mark.parametrize(
    "dims",
    [
        (WindowDimension(2, 2), WindowDimension(2, 2)),
        (WindowDimension(3, 2, 1, 1), WindowDimension(2, 1)),
        (WindowDimension(3, 1, 1, 1), WindowDimension(3, 1, 1, 1)),
    ],
)
@pytest.mark.parametrize("combiner", ["add", "twice"])
def test_select_and_scatter(run, rng, dims, combiner):
    x = rng.permutation(30).reshape(5, 6).astype(np.float32)
    x[2, 3] = x[2, 2]  # a tie: the first one stays
    out = tuple(d.output_size(n) for d, n in zip(dims, x.shape, strict=True))
    source = rng.integers(1, 9, out).astype(np.float32)
    want = np.full(x.shape, 0.5, np.float32)
    for position in np.ndindex(*out):
        best = None
        for place in elements(x, dims, position):
            if best is None or not x[best] >= x[place]:
                best = place
        want[best] = COMBINE[combiner](want[best], source[position])
    body = f"""x = f32[5,6] parameter(0) s = f32[{out[0]},{out[1]}] parameter(1) i = f32[] constant(0.5)
      ROOT r = f32[5,6] select-and-scatter(x, s, i), {window_text(dims)}, select=ge, scatter={combiner}"""
    before = "twice { a = f32[] parameter(0) b = f32[] parameter(1) t = f32[] add(a, a) ROOT r = f32[] add(t, b) }"
    np.testing.assert_array_equal(run(body, x, source, before=before)[0], want)


def test_variadic_window_finds_the_place_of_the_maximum(run, rng):
    before = """f { v = f32[] parameter(0) i = s32[] parameter(1) w = f32[] parameter(2) j = s32[] parameter(3)
      ge = pred[] compare(v, w), direction=GE a = f32[] select(ge, v, w) b = s32[] select(ge, i, j)
      ROOT t = (f32[], s32[]) tuple(a, b) }"""
    x = rng.permutation(12).astype(np.float32)
    body = """x = f32[12] parameter(0) i = s32[12] iota(), iota_dimension=0 lo = f32[] constant(-inf) z = s32[] constant(-1)
      ROOT r = (f32[4], s32[4]) reduce-window(x, i, lo, z), window={size=3 stride=3}, to_apply=f"""
    values, places = run(body, x, before=before)
    rows = x.reshape(4, 3)
    np.testing.assert_array_equal(values, rows.max(1))
    np.testing.assert_array_equal(places, rows.argmax(1) + 3 * np.arange(4))
