"""sort and topk: comparators that are recognised, and any others, against Python's stable sort."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd.evaluator import evaluate
from spmd.evaluator.sort import _merge_exchange
from spmd.evaluator.sort_keys import match_sort_keys
from spmd.text.parser import parse_module

LESS = "cmp { a = {k}[] parameter(0) b = {k}[] parameter(1) ROOT r = pred[] compare(a, b), direction={d} }"
# JAX's comparator of floats: NaN last, -0 equal to 0.
JAX_FLOATS = """cmp { a = f32[] parameter(0) b = f32[] parameter(1) z = f32[] constant(0) n = f32[] constant(nan)
  an = pred[] compare(a, a), direction=NE bn = pred[] compare(b, b), direction=NE
  az = pred[] compare(a, z), direction=EQ bz = pred[] compare(b, z), direction=EQ
  a0 = f32[] select(az, z, a) b0 = f32[] select(bz, z, b) a1 = f32[] select(an, n, a0) b1 = f32[] select(bn, n, b0)
  ROOT r = pred[] compare(a1, b1), direction=LT, type=TOTALORDER }"""
TWO_KEYS = """cmp { a = s32[] parameter(0) b = s32[] parameter(1) x = f32[] parameter(2) y = f32[] parameter(3)
  lt = pred[] compare(a, b), direction=LT eq = pred[] compare(a, b), direction=EQ gt = pred[] compare(x, y), direction=GT
  both = pred[] and(eq, gt) ROOT r = pred[] or(lt, both) }"""
# By distance from 3, larger first: recognised by no pattern, since the two sides differ in form.
ODD = """cmp { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] constant(3)
  p = s32[] subtract(a, c) q = s32[] subtract(c, b) x = s32[] abs(p) y = s32[] abs(q)
  ROOT r = pred[] compare(x, y), direction=GT }"""


def sort_text(comparator, operands, dimension=0):
    parameters = " ".join(f"p{i} = {shape} parameter({i})" for i, shape in enumerate(operands))
    result = f"({', '.join(operands)})" if len(operands) > 1 else operands[0]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    return f"""HloModule m
      {comparator}
      ENTRY e {{ {parameters}
      ROOT r = {result} sort({names}), dimensions={{{dimension}}}, is_stable=true, to_apply=cmp }}"""


def recognised(text):
    return match_sort_keys(parse_module(text).entry.root.to_apply) is not None


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize(
    ("kind", "dtype"), [("s32", np.int32), ("u8", np.uint8), ("f32", np.float32)]
)
def test_plain_comparators(rng, direction, kind, dtype):
    x = rng.integers(0, 100, (5, 4)).astype(dtype)
    text = sort_text(LESS.replace("{k}", kind).replace("{d}", direction), [f"{kind}[5,4]"])
    assert recognised(text)
    want = np.sort(x, axis=0)
    np.testing.assert_array_equal(
        evaluate(parse_module(text), x)[0], want if direction == "LT" else want[::-1]
    )


def test_jax_float_comparator(rng):
    x = np.array([2, np.nan, -0.0, 0.0, -np.inf, -np.nan, 1, 0.0, -0.0], np.float32)
    text = sort_text(JAX_FLOATS, ["f32[9]"])
    assert recognised(text)
    got = evaluate(parse_module(text), x)[0]
    np.testing.assert_array_equal(got, np.sort(x))
    assert np.signbit(got[1:5]).tolist() == [
        True,
        False,
        False,
        True,
    ]  # zeros are equal: in their first order


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_two_keys(pairs):
    keys = np.array([a for a, _ in pairs], np.int32)
    values = np.array([b for _, b in pairs], np.float32)
    n = len(pairs)
    text = sort_text(TWO_KEYS, [f"s32[{n}]", f"f32[{n}]", f"s32[{n}]"]).replace(
        "lt = pred[]", "i = s32[] parameter(4) j = s32[] parameter(5) lt = pred[]"
    )
    assert recognised(text)
    got = evaluate(parse_module(text), keys, values, np.arange(n, dtype=np.int32))
    order = sorted(range(n), key=lambda i: (pairs[i][0], -pairs[i][1]))
    assert got[2].tolist() == order


@settings(max_examples=40)
@given(st.lists(st.integers(-3, 9), min_size=0, max_size=24))
def test_any_other_comparator_sorts_stably(values):
    x = np.array(values, np.int32)
    comparator = ODD.replace("c = s32", "i = s32[] parameter(2) j = s32[] parameter(3) c = s32")
    text = sort_text(comparator, [f"s32[{len(x)}]", f"s32[{len(x)}]"])
    assert not recognised(text)
    got = evaluate(parse_module(text), x, np.arange(len(x), dtype=np.int32))
    order = sorted(
        range(len(x)), key=functools.cmp_to_key(lambda i, j: abs(x[j] - 3) - abs(x[i] - 3))
    )
    assert got[1].tolist() == order
    assert got[0].tolist() == [values[i] for i in order]


def test_general_comparator_along_an_inner_dimension(rng):
    x = rng.integers(-5, 9, (3, 7, 2)).astype(np.int32)
    got = evaluate(parse_module(sort_text(ODD, ["s32[3,7,2]"], 1)), x)[0]
    np.testing.assert_array_equal(np.abs(got - 3), -np.sort(-np.abs(x - 3), axis=1))


@pytest.mark.parametrize("n", range(1, 9))
def test_merge_exchange_sorts_all_zero_one_sequences(n):
    """A network that sorts every sequence of zeros and ones sorts everything (Knuth 5.3.4 Z)."""
    rounds = list(_merge_exchange(n))
    for bits in range(2**n):
        x = np.array([bits >> i & 1 for i in range(n)])
        for low, distance in rounds:
            a, b = x[low], x[low + distance]
            x[low], x[low + distance] = np.minimum(a, b), np.maximum(a, b)
        assert np.all(np.diff(x) >= 0)


@pytest.mark.parametrize("largest", [True, False])
def test_topk(run, largest):
    x = np.array([[3, 1, 3, np.nan], [-1, -0.0, 0.0, -2]], np.float32)
    body = f"x = f32[2,4] parameter(0) ROOT r = (f32[2,3], s32[2,3]) topk(x), k=3, largest={str(largest).lower()}"
    values, places = run(body, x)
    want = [[3, 0, 2], [2, 1, 0]] if largest else [[1, 0, 2], [3, 0, 1]]
    assert places.tolist() == want
    np.testing.assert_array_equal(values, np.take_along_axis(x, np.array(want), 1))


def test_comparators_are_read_in_linear_time(run):
    """Every step of this key reads the one before it twice."""
    lines = ["x0 = f32[] parameter(0)", "y0 = f32[] parameter(1)"]
    for i in range(60):
        lines += [f"{v}{i + 1} = f32[] add({v}{i}, {v}{i})" for v in "xy"]
    before = f"c {{ {' '.join(lines)} ROOT r = pred[] compare(x60, y60), direction=LT }}"
    body = "x = f32[3] parameter(0) ROOT r = f32[3] sort(x), dimensions={0}, to_apply=c"
    x = np.array([0.5, 0.25, 0.0], np.float32)
    assert run(body, x, before=before)[0].tolist() == [0.0, 0.25, 0.5]
