"""dot and ragged-dot against einsum over exact integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from spmd.shape import PrimitiveType

CASES = [
    ("ij,jk->ik", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("ij,kj->ik", "lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    ("ji,jk->ik", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    (
        "bij,bjk->bik",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    (
        "ibj,jkb->bik",
        "lhs_batch_dims={1}, rhs_batch_dims={2}, lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    ),
    ("ijk,kjl->il", "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}"),
    ("i,j->ij", ""),
    ("i,i->", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    (
        "abij,bajk->abik",
        "lhs_batch_dims={0,1}, rhs_batch_dims={1,0}, lhs_contracting_dims={3}, rhs_contracting_dims={2}",
    ),
]
SIZES = {"a": 2, "b": 3, "i": 4, "j": 5, "k": 6, "l": 7}


def shape_of(letters):
    return tuple(SIZES[c] for c in letters)


def text_of(kind, letters):
    return f"{kind}[{','.join(str(SIZES[c]) for c in letters)}]"


@pytest.mark.parametrize(("spec", "attributes"), CASES)
@pytest.mark.parametrize(
    ("kind", "dtype", "result"),
    [
        ("f32", np.float32, "f32"),
        ("s8", np.int8, "s32"),
        ("s32", np.int32, "s32"),
        ("bf16", ml_dtypes.bfloat16, "f32"),
        ("c64", np.complex64, "c64"),
    ],
)
def test_dot(run, rng, spec, attributes, kind, dtype, result):
    operands, out = spec.split("->")
    left, right = operands.split(",")
    x = rng.integers(-8, 8, shape_of(left))
    y = rng.integers(-8, 8, shape_of(right))
    comma = f", {attributes}" if attributes else ""
    body = (
        f"x = {text_of(kind, left)} parameter(0) y = {text_of(kind, right)} parameter(1)"
        f" ROOT r = {text_of(result, out)} dot(x, y){comma}"
    )
    got = run(body, x.astype(dtype), y.astype(dtype))[0]
    np.testing.assert_array_equal(got, np.einsum(spec, x, y))


def test_integer_dot_wraps(run):
    x = np.full((1, 4), 2**30, np.int32)
    body = "x = s32[1,4] parameter(0) y = s32[4,1] reshape(x) ROOT r = s32[1,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert run(body, x)[0].tolist() == [[4 * 2**60 % 2**32]]
    x = np.full((1, 5), 46341, np.int32)
    wrapped = (5 * 46341**2 + 2**31) % 2**32 - 2**31
    body = "x = s32[1,5] parameter(0) y = s32[5,1] reshape(x) ROOT r = s32[1,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert run(body, x)[0].tolist() == [[wrapped]]


def test_narrow_integers_are_exact_at_any_depth(run):
    n = 40_000  # 127 * 127 * n leaves f32's 24 bits
    x = np.full((1, n), 127, np.int8)
    body = f"x = s8[1,{n}] parameter(0) y = s8[{n},1] reshape(x) ROOT r = s32[1,1] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    assert run(body, x)[0].tolist() == [[127 * 127 * n]]


def test_bf16_dot_rounds_its_result_once(run):
    x = np.full((1, 256), 2.0**-8, ml_dtypes.bfloat16)
    x[0, 0] = 1
    ones = np.ones((256, 1), ml_dtypes.bfloat16)
    body = "x = bf16[1,256] parameter(0) y = bf16[256,1] parameter(1) ROOT r = bf16[1,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert float(run(body, x, ones)[0][0, 0]) == float(ml_dtypes.bfloat16(1 + 255 / 256))


def test_ragged_free_dimension(run, rng):
    x, w = (
        rng.integers(-4, 4, (9, 3)).astype(np.float32),
        rng.integers(-4, 4, (3, 3, 2)).astype(np.float32),
    )
    sizes = np.array([4, 0, 3], np.int32)
    body = """x = f32[9,3] parameter(0) w = f32[3,3,2] parameter(1) s = s32[3] parameter(2)
      ROOT r = f32[9,2] ragged-dot(x, w, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"""
    want = np.zeros((9, 2), np.float32)
    start = 0
    for group, size in enumerate(sizes):
        want[start : start + size] = x[start : start + size] @ w[group]
        start += size
    np.testing.assert_array_equal(run(body, x, w, sizes)[0], want)


def test_groups_of_more_rows_than_there_are(run, rng):
    """The last groups are cut off; the first ones keep their rows."""
    x, w = (rng.integers(-4, 4, dims).astype(np.float32) for dims in ((5, 3), (3, 3, 2)))
    sizes = np.array([2, 2, 4], np.int32)
    body = """x = f32[5,3] parameter(0) w = f32[3,3,2] parameter(1) s = s32[3] parameter(2)
      ROOT r = f32[5,2] ragged-dot(x, w, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"""
    want = np.concatenate([x[:2] @ w[0], x[2:4] @ w[1], x[4:] @ w[2]])
    np.testing.assert_array_equal(run(body, x, w, sizes)[0], want)


def test_nan_reaches_only_its_group(run):
    x, y = np.ones((3, 2), np.float32), np.ones((3, 4), np.float32)
    x[0], y[2] = np.nan, np.inf
    body = """x = f32[3,2] parameter(0) y = f32[3,4] parameter(1) s = s32[3] parameter(2)
      ROOT r = f32[3,2,4] ragged-dot(x, y, s), lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}"""
    (got,) = run(body, x, y, np.array([1, 1, 1], np.int32))
    np.testing.assert_array_equal(got[:, 0, 0], [np.nan, 1, np.inf])


def test_ragged_contracting_dimension(run, rng):
    x, y = (
        rng.integers(-4, 4, (2, 6)).astype(np.float32),
        rng.integers(-4, 4, (6, 3)).astype(np.float32),
    )
    sizes = np.array([1, 5], np.int32)
    body = """x = f32[2,6] parameter(0) y = f32[6,3] parameter(1) s = s32[2] parameter(2)
      ROOT r = f32[2,2,3] ragged-dot(x, y, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}"""
    want = np.stack([x[:, :1] @ y[:1], x[:, 1:] @ y[1:]])
    np.testing.assert_array_equal(run(body, x, y, sizes)[0], want)


def test_scaled_dot_multiplies_blocks_by_their_scales(run, rng):
    f8, e8 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
    x, y = rng.integers(-4, 5, (2, 8)).astype(f8), rng.integers(-4, 5, (8, 3)).astype(f8)
    a, b = np.array([[1, 2], [4, 0.5]]).astype(e8), np.array([[2, 2, 1], [0.25, 1, 8]]).astype(e8)
    body = """x = f8e4m3fn[2,8] parameter(0) y = f8e4m3fn[8,3] parameter(1) a = f8e8m0fnu[2,2] parameter(2)
      b = f8e8m0fnu[2,3] parameter(3)
      ROOT r = f32[2,3] scaled-dot(x, y, a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    wide = [v.astype(np.float64) for v in (x, y, a, b)]
    want = sum(
        (wide[2][:, [k]] * wide[0][:, 4 * k : 4 * k + 4])
        @ (wide[1][4 * k : 4 * k + 4] * wide[3][k])
        for k in range(2)
    )
    np.testing.assert_array_equal(run(body, x, y, a, b)[0], want)


def test_ragged_dimension_with_group_sizes_per_batch(run, rng):
    """Each batch element cuts its rows on its own."""
    x = rng.integers(-3, 4, (2, 5, 3)).astype(np.float32)
    w = rng.integers(-3, 4, (2, 2, 3, 4)).astype(np.float32)
    sizes = np.array([[2, 3], [4, 0]], np.int32)
    body = """x = f32[2,5,3] parameter(0) w = f32[2,2,3,4] parameter(1) s = s32[2,2] parameter(2)
      ROOT r = f32[2,5,4] ragged-dot(x, w, s), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2},
        rhs_contracting_dims={2}, lhs_ragged_dims={1}, rhs_group_dims={0}"""
    (got,) = run(body, x, w, sizes)
    want = np.zeros((2, 5, 4), np.float32)
    for b in range(2):
        row = 0
        for g in range(2):
            for _ in range(sizes[b, g]):
                want[b, row] = x[b, row] @ w[g, b]
                row += 1
    np.testing.assert_array_equal(got, want)


def test_ragged_contracting_dimension_with_group_sizes_per_batch(run, rng):
    x = rng.integers(-3, 4, (2, 3, 5)).astype(np.float32)
    y = rng.integers(-3, 4, (2, 5, 4)).astype(np.float32)
    sizes = np.array([[2, 2], [0, 5]], np.int32)
    body = """x = f32[2,3,5] parameter(0) y = f32[2,5,4] parameter(1) s = s32[2,2] parameter(2)
      ROOT r = f32[2,2,3,4] ragged-dot(x, y, s), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
        rhs_contracting_dims={1}, lhs_ragged_dims={2}"""
    (got,) = run(body, x, y, sizes)
    for b in range(2):
        start = 0
        for g in range(2):
            stop = start + sizes[b, g]
            np.testing.assert_array_equal(got[g, b], x[b][:, start:stop] @ y[b][start:stop])
            start = stop


@pytest.mark.parametrize(("left", "right", "result"), [("bf16", "s8", "bf16"), ("s8", "s8", "f32"), ("f32", "c64", "c64")])  # fmt: skip
def test_products_of_two_kinds_of_number(run, left, right, result):
    """Integers are multiplied into floating-point numbers, those into complex ones (quantized weights)."""
    x, y = np.array([[1, -2], [3, 4]]), np.array([[5, 6], [-7, 8]])
    body = (
        f"x = {left}[2,2] parameter(0)\ny = {right}[2,2] parameter(1)\n"
        f"ROOT r = {result}[2,2] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    given = (a.astype(PrimitiveType(k).numpy) for a, k in ((x, left), (y, right)))
    (got,) = run(body, *given)
    assert got.dtype == PrimitiveType(result).numpy
    assert got.astype(np.complex64).tolist() == (x @ y).tolist()
