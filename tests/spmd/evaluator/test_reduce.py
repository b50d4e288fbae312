"""reduce and map against plain loops."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from spmd.shape import PrimitiveType

ARGMAX = """
argmax {
  v = f32[] parameter(0) i = s32[] parameter(1) w = f32[] parameter(2) j = s32[] parameter(3)
  gt = pred[] compare(v, w), direction=GT
  ne = pred[] compare(v, v), direction=NE
  better = pred[] or(gt, ne)
  eq = pred[] compare(v, w), direction=EQ
  lt = pred[] compare(i, j), direction=LT
  first = pred[] and(eq, lt)
  left = pred[] or(better, first)
  sv = f32[] select(better, v, w)
  si = s32[] select(left, i, j)
  ROOT t = (f32[], s32[]) tuple(sv, si)
}
"""


@pytest.mark.parametrize(
    ("opcode", "kind", "init"),
    [
        ("add", "f32", 0), ("multiply", "f32", 1), ("maximum", "f32", -np.inf), ("minimum", "f32", np.inf), ("add", "s8", 3),
        ("and", "u16", 65535), ("or", "u16", 0), ("xor", "s32", 5), ("and", "pred", True), ("add", "pred", False),
        ("maximum", "s32", -7),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dimensions", [(0,), (1,), (2,), (0, 2), (0, 1, 2), (2, 0)])
def test_known_reducers(run, rng, opcode, kind, init, dimensions):
    dtype = {"f32": np.float32, "s8": np.int8, "u16": np.uint16, "s32": np.int32, "pred": np.bool_}[
        kind
    ]
    x = (rng.integers(0, 2, (3, 4, 5)) if kind == "pred" else rng.integers(1, 5, (3, 4, 5))).astype(
        dtype
    )
    kept = [d for d in range(3) if d not in dimensions]
    sizes = ",".join(str(x.shape[d]) for d in kept)
    before = f"f {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT r = {kind}[] {opcode}(b, a) }}"
    body = (
        f"x = {kind}[3,4,5] parameter(0) i = {kind}[] parameter(1)"
        f" ROOT r = {kind}[{sizes}] reduce(x, i), dimensions={{{','.join(map(str, dimensions))}}}, to_apply=f"
    )
    combine = {
        "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "and": np.bitwise_and,
        "or": np.bitwise_or, "xor": np.bitwise_xor,
    }[opcode]  # fmt: skip
    rows = np.moveaxis(x, kept, range(len(kept))).reshape(*(x.shape[d] for d in kept), -1)
    want = functools.reduce(combine, np.moveaxis(rows, -1, 0), np.asarray(init, dtype))
    np.testing.assert_array_equal(run(body, x, np.asarray(init, dtype), before=before)[0], want)


def test_long_sums_keep_their_digits_in_any_layout(run):
    """0.1 a hundred thousand times in f32: a running sum is off by 1e-4 and more, a pairwise one is not."""
    x = np.full((100_000, 2), 0.1, np.float32)
    body = "x = f32[100000,2] parameter(0) z = f32[] constant(0) ROOT r = f32[2] reduce(x, z), dimensions={0}, to_apply=add"
    exact = float(np.float32(0.1)) * 100_000
    np.testing.assert_allclose(run(body, x)[0], exact, rtol=1e-6)
    body = "x = f32[2,100000] parameter(0) z = f32[] constant(0) ROOT r = f32[2] reduce(x, z), dimensions={1}, to_apply=add"
    np.testing.assert_allclose(run(body, np.ascontiguousarray(x.T))[0], exact, rtol=1e-6)


def test_bf16_sums_round_once(run):
    """1 + 1000 x 2^-8: rounding each addition to bf16 would stay at 1."""
    x = np.full(1001, 2.0**-8, ml_dtypes.bfloat16)
    x[0] = 1
    before = "f { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] add(a, b) }"
    body = "x = bf16[1001] parameter(0) z = bf16[] constant(0) ROOT r = bf16[] reduce(x, z), dimensions={0}, to_apply=f"
    assert float(run(body, x, before=before)[0]) == float(ml_dtypes.bfloat16(1 + 1000 / 256))


def test_reducer_with_an_annotation_at_its_root(run):
    before = """f { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] add(a, b)
      ROOT r = f32[] custom-call(s), custom_call_target="Sharding", sharding={replicated} }"""
    body = "x = f32[4] parameter(0) z = f32[] constant(1) ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=f"
    assert float(run(body, np.arange(4, dtype=np.float32), before=before)[0]) == 7


def test_argmax_with_ties_and_nan(run, rng):
    x = rng.integers(0, 4, (7, 5)).astype(np.float32)
    x[3, 2] = np.nan
    body = """x = f32[7,5] parameter(0) i = s32[7,5] iota(), iota_dimension=0
      lo = f32[] constant(-inf) z = s32[] constant(0)
      ROOT r = (f32[5], s32[5]) reduce(x, i, lo, z), dimensions={0}, to_apply=argmax"""
    values, places = run(body, x, before=ARGMAX)
    np.testing.assert_array_equal(places, np.argmax(x, axis=0))
    np.testing.assert_array_equal(values, np.max(x, axis=0))


def test_an_associative_reducer_that_does_not_commute_keeps_its_order(run, rng):
    """2x2 matrix products, entries as four operands."""
    names = "abcdefgh"
    params = " ".join(f"{n} = f32[] parameter({k})" for k, n in enumerate(names))
    terms = {"p": "ae+bg", "q": "af+bh", "r": "ce+dg", "t": "cf+dh"}
    lines = []
    for out, (x, y, _, z, w) in terms.items():
        lines.append(
            f"{out}1 = f32[] multiply({x}, {y}) {out}2 = f32[] multiply({z}, {w}) {out}0 = f32[] add({out}1, {out}2)"
        )
    before = f"f {{ {params} {' '.join(lines)} ROOT out = (f32[], f32[], f32[], f32[]) tuple(p0, q0, r0, t0) }}"
    matrices = rng.integers(-2, 3, (5, 2, 2)).astype(np.float32)
    body = """a = f32[5] parameter(0) b = f32[5] parameter(1) c = f32[5] parameter(2) d = f32[5] parameter(3)
      one = f32[] constant(1) zero = f32[] constant(0)
      ROOT r = (f32[], f32[], f32[], f32[]) reduce(a, b, c, d, one, zero, zero, one), dimensions={0}, to_apply=f"""
    flat = matrices.reshape(5, 4)
    got = run(body, *(np.ascontiguousarray(flat[:, k]) for k in range(4)), before=before)
    want = functools.reduce(np.matmul, matrices)
    np.testing.assert_array_equal(np.array(got).reshape(2, 2), want)


FOLDED = {
    "maximum(a, abs(b))": ("m = f32[] abs(b) ROOT r = f32[] maximum(a, m)", lambda a, b: max(a, abs(b))),
    "add(b * b, a)": ("m = f32[] multiply(b, b) ROOT r = f32[] add(m, a)", lambda a, b: b * b + a),
    "subtract": ("ROOT r = f32[] subtract(a, b)", lambda a, b: a - b),
    "half and more": (
        "h = f32[] constant(0.5) m = f32[] multiply(a, h) ROOT r = f32[] add(m, b)",
        lambda a, b: a / 2 + b,
    ),
    "abs of both": (
        "m = f32[] abs(a) n = f32[] abs(b) p = pred[] compare(m, n), direction=GE ROOT r = f32[] select(p, a, b)",
        lambda a, b: a if abs(a) >= abs(b) else b,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FOLDED))
@pytest.mark.parametrize(("shape", "axes"), [((7,), (0,)), ((3, 4, 5), (0, 2)), ((2, 9), (0,))])
def test_elements_come_in_as_second_arguments(run, rng, name, shape, axes):
    body, combine = FOLDED[name]
    x = rng.integers(-9, 9, shape).astype(np.float32)
    kept = [d for d in range(x.ndim) if d not in axes]
    sizes = tuple(shape[d] for d in kept)
    rows = x.transpose([*axes, *kept]).reshape(-1, *sizes)
    want = np.empty(sizes, np.float32)
    for at in np.ndindex(sizes):
        want[at] = functools.reduce(combine, rows[(slice(None), *at)].tolist(), 1.0)
    before = f"f {{ a = f32[] parameter(0) b = f32[] parameter(1) {body} }}"
    text = f"""x = f32[{",".join(map(str, shape))}] parameter(0) i = f32[] constant(1)
      ROOT r = f32[{",".join(map(str, sizes))}] reduce(x, i), dimensions={{{",".join(map(str, axes))}}}, to_apply=f"""
    np.testing.assert_array_equal(run(text, x, before=before)[0], want)


@pytest.mark.parametrize("count", [4097, 10_007, 65_536])
@pytest.mark.parametrize("init", [0, 3])
def test_many_elements_are_folded_by_groups(run, rng, count, init):
    """abs(a) + abs(b), of which 0 and 0 give 0, and 3 and 3 do not give 3."""
    x = rng.integers(-9, 9, (count, 2)).astype(np.float32)
    before = """f { a = f32[] parameter(0) b = f32[] parameter(1)
      m = f32[] abs(a) n = f32[] abs(b) ROOT r = f32[] add(m, n) }"""
    text = f"""x = f32[{count},2] parameter(0) i = f32[] constant({init})
      ROOT r = f32[2] reduce(x, i), dimensions={{0}}, to_apply=f"""
    np.testing.assert_array_equal(run(text, x, before=before)[0], init + np.abs(x).sum(0))


def test_many_elements_are_made_into_something_once(run, rng):
    """Each square is taken once, whatever the initial value."""
    x = rng.integers(-3, 4, 100_000).astype(np.float32)
    before = "f { a = f32[] parameter(0) b = f32[] parameter(1) m = f32[] multiply(b, b) ROOT r = f32[] add(a, m) }"
    text = "x = f32[100000] parameter(0) i = f32[] constant(2) ROOT r = f32[] reduce(x, i), dimensions={0}, to_apply=f"
    assert float(run(text, x, before=before)[0]) == 2 + float(np.square(x).sum())


def test_results_of_one_reducer_that_are_known_reductions(run, rng):
    """The results are the sum of x * y and the largest y that is below -1; x and y, and so the totals, differ in type."""
    x, y = rng.integers(-9, 9, (2, 5, 7))
    before = """f { s = f32[] parameter(0) m = s32[] parameter(1) x = bf16[] parameter(2) y = s32[] parameter(3)
      u = f32[] convert(x) v = f32[] convert(y) p = f32[] multiply(u, v) t = f32[] add(p, s)
      low = s32[] constant(-1) w = s32[] minimum(y, low) n = s32[] maximum(m, w)
      ROOT r = (f32[], s32[]) tuple(t, n) }"""
    text = """x = bf16[5,7] parameter(0) y = s32[5,7] parameter(1) s = f32[] constant(1) m = s32[] constant(-20)
      ROOT r = (f32[7], s32[7]) reduce(x, y, s, m), dimensions={0}, to_apply=f"""
    sums, most = run(text, x.astype(ml_dtypes.bfloat16), y.astype(np.int32), before=before)
    np.testing.assert_array_equal(sums, 1 + (x * y).sum(0))
    np.testing.assert_array_equal(most, np.minimum(y, -1).max(0))
    assert sums.dtype == np.float32


@pytest.mark.parametrize("kind", ["f8e4m3fn", "f8e5m2", "bf16", "s4", "u8", "pred", "c64"])
def test_types_without_infinities_or_order(run, rng, kind):
    """Each has a neutral element of its own."""
    dtype = PrimitiveType(kind).numpy
    x = rng.integers(0, 2 if kind == "pred" else 3, 6).astype(dtype)
    operation = "add" if kind == "c64" else "maximum"
    before = f"f {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) m = {kind}[] multiply(b, b) ROOT r = {kind}[] {operation}(a, m) }}"
    text = f"x = {kind}[6] parameter(0) i = {kind}[] parameter(1) ROOT r = {kind}[] reduce(x, i), dimensions={{0}}, to_apply=f"
    (got,) = run(text, x, np.zeros((), dtype), before=before)
    squares = np.square(x.astype(np.complex64).real)
    assert complex(got) == (squares.sum() if kind == "c64" else squares.max())


def test_reducing_nothing_gives_the_initial_value(run):
    body = "x = f32[0,3] parameter(0) z = f32[] constant(5) ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=add"
    assert run(body, np.zeros((0, 3), np.float32))[0].tolist() == [5, 5, 5]
    body = "x = f32[0,3] parameter(0) z = f32[] constant(5) ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=minus"
    assert run(body, np.zeros((0, 3), np.float32))[0].tolist() == [5, 5, 5]
    body = body.replace("minus", "max")
    assert run(body, np.zeros((0, 3), np.float32))[0].tolist() == [5, 5, 5]


def test_map_applies_a_function_with_a_loop_inside(run):
    """A while in the function cannot run on whole arrays: each element has its own number of trips."""
    before = """
      cond { s = (f32[], f32[]) parameter(0) v = f32[] get-tuple-element(s), index=0 k = f32[] constant(100)
        ROOT c = pred[] compare(v, k), direction=LT }
      body { s = (f32[], f32[]) parameter(0) v = f32[] get-tuple-element(s), index=0
        n = f32[] get-tuple-element(s), index=1 one = f32[] constant(1) d = f32[] add(v, v) m = f32[] add(n, one)
        ROOT t = (f32[], f32[]) tuple(d, m) }
      f { x = f32[] parameter(0) z = f32[] constant(0) i = (f32[], f32[]) tuple(x, z)
        w = (f32[], f32[]) while(i), condition=cond, body=body ROOT r = f32[] get-tuple-element(w), index=1 }"""
    x = np.array([1, 50, 100, 3], np.float32)
    body = "x = f32[4] parameter(0) ROOT r = f32[4] map(x), dimensions={0}, to_apply=f"
    assert run(body, x, before=before)[0].tolist() == [7, 1, 0, 6]


@pytest.mark.parametrize(("kind", "smallest"), [("bf16", 2.0**-8), ("f16", 2.0**-11)])
@pytest.mark.parametrize("operation", ["reduce", "reduce-window"])
def test_reducers_that_round_to_narrow_floats_keep_wider_totals(run, kind, smallest, operation):
    """1 and a thousand numbers too small for it: a sum that is rounded at each step stays at 1."""
    dtype = PrimitiveType(kind).numpy
    x = np.full(1001, smallest, dtype)
    x[0] = 1
    before = f"""f {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) s = {kind}[] add(a, b)
      p = pred[] compare(a, a), direction=EQ ROOT r = {kind}[] select(p, s, a) }}"""
    how = "dimensions={0}" if operation == "reduce" else "window={size=1001 pad=1000_0}"
    shape = "" if operation == "reduce" else "1001"
    text = f"""x = {kind}[1001] parameter(0) z = {kind}[] constant(0)
      ROOT r = {kind}[{shape}] {operation}(x, z), {how}, to_apply=f"""
    (got,) = run(text, x, before=before)
    assert float(np.ravel(got)[-1]) == float(dtype.type(1 + 1000 * smallest))
