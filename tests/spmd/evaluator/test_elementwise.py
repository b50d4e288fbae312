"""Elementwise ops against Python's own arithmetic, edge cases first."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd.evaluator import integer
from spmd.evaluator.special import erf

INF, NAN = np.inf, np.nan
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def binary(run, opcode, kind, x, y, result=None):
    n = len(x)
    out = result or kind
    body = f"x = {kind}[{n}] parameter(0)\n y = {kind}[{n}] parameter(1)\n ROOT r = {out}[{n}] {opcode}(x, y)"
    return run(body, x, y)[0]


def unary(run, opcode, kind, x, result=None):
    n = len(x)
    return run(f"x = {kind}[{n}] parameter(0)\n ROOT r = {result or kind}[{n}] {opcode}(x)", x)[0]


def test_integer_division_by_zero_and_overflow(run):
    x = np.array([7, -7, 7, -7, 5, 0, INT32_MIN], np.int32)
    y = np.array([2, 2, -2, -2, 0, 0, -1], np.int32)
    assert binary(run, "divide", "s32", x, y).tolist() == [3, -3, -3, 3, -1, -1, INT32_MIN]
    assert binary(run, "remainder", "s32", x, y).tolist() == [1, -1, 1, -1, 5, 0, 0]


def test_unsigned_division_by_zero_is_all_ones(run):
    x, y = np.array([7, 0], np.uint8), np.array([0, 0], np.uint8)
    assert binary(run, "divide", "u8", x, y).tolist() == [255, 255]
    assert binary(run, "remainder", "u8", x, y).tolist() == [7, 0]


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_division_truncates_like_exact_fractions(a, b):
    x, y = np.array([a], np.int8), np.array([b], np.int8)
    with np.errstate(all="ignore"):
        quotient, remainder = int(integer.divide(x, y)[0]), int(integer.remainder(x, y)[0])
    if b == 0:
        assert (quotient, remainder) == (-1, a)
    elif (a, b) == (-128, -1):
        assert (quotient, remainder) == (-128, 0)
    else:
        assert quotient == math.trunc(Fraction(a, b))
        assert remainder == a - b * quotient


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_integer_power_wraps_and_negative_exponents_round_to_zero(base, exponent):
    x, y = np.array([base], np.int8), np.array([exponent], np.int8)
    got = int(integer.power(x, y)[0])
    exact = (
        base**exponent if exponent >= 0 else math.trunc(Fraction(base) ** exponent) if base else 0
    )
    assert got == (exact + 128) % 256 - 128


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("shift-left", [-(2**31), 0, 0, -8]),
        ("shift-right-arithmetic", [0, 0, -1, -2]),
        ("shift-right-logical", [0, 0, 0, 0x7FFFFFFE]),
    ],
)
def test_shifts_beyond_the_width(run, opcode, expected):
    x = np.array([1, 1, -4, -4], np.int32)
    by = np.array([31, 32, -1, 1], np.int32)
    assert binary(run, opcode, "s32", x, by).tolist() == expected


def test_integer_arithmetic_wraps(run):
    top, one = np.array([127], np.int8), np.array([1], np.int8)
    assert binary(run, "add", "s8", top, one).tolist() == [-128]
    assert binary(run, "multiply", "s8", top, top).tolist() == [1]
    assert unary(run, "negate", "s8", np.array([-128], np.int8)).tolist() == [-128]
    assert unary(run, "abs", "s8", np.array([-128], np.int8)).tolist() == [-128]


def test_four_bit_integers_wrap_to_four_bits(run):
    x = np.array([7, -8, 3, -1], ml_dtypes.int4)
    y = np.array([1, -1, 5, 2], ml_dtypes.int4)
    assert binary(run, "add", "s4", x, y).astype(int).tolist() == [-8, 7, -8, 1]
    assert unary(run, "popcnt", "s4", x).astype(int).tolist() == [3, 1, 2, 4]
    assert unary(run, "count-leading-zeros", "s4", x).astype(int).tolist() == [1, 0, 2, 0]
    by = np.array([1, 1, 1, 1], ml_dtypes.int4)
    assert binary(run, "shift-right-logical", "s4", x, by).astype(int).tolist() == [3, 4, 1, 7]


def test_bit_counts(run):
    x = np.array([0, 1, 255, 65535, 40000], np.uint16)
    assert unary(run, "popcnt", "u16", x).tolist() == [int(v).bit_count() for v in x]
    assert unary(run, "count-leading-zeros", "u16", x).tolist() == [
        16 - int(v).bit_length() for v in x
    ]


def test_pred_arithmetic_is_logic(run):
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    for opcode, expected in {
        "add": x | y, "multiply": x & y, "maximum": x | y, "minimum": x & y, "and": x & y, "or": x | y, "xor": x ^ y,
    }.items():  # fmt: skip
        assert binary(run, opcode, "pred", x, y).tolist() == expected.tolist(), opcode
    assert unary(run, "not", "pred", x).tolist() == (~x).tolist()


def test_maximum_minimum_and_clamp_let_nan_through(run):
    x, y = np.array([1, NAN, 2, -0.0], np.float32), np.array([NAN, 1, 3, 1], np.float32)
    np.testing.assert_array_equal(binary(run, "maximum", "f32", x, y), [NAN, NAN, 3, 1])
    np.testing.assert_array_equal(binary(run, "minimum", "f32", x, y), [NAN, NAN, 2, -0.0])
    body = "l = f32[] parameter(0) x = f32[4] parameter(1) h = f32[] parameter(2) ROOT c = f32[4] clamp(l, x, h)"
    low, high = np.float32(-1), np.float32(1)
    value = np.array([-5, 0.5, 5, NAN], np.float32)
    np.testing.assert_array_equal(run(body, low, value, high)[0], [-1, 0.5, 1, NAN])
    # low above high: the upper bound wins.
    np.testing.assert_array_equal(run(body, high, value, low)[0], [-1, -1, -1, NAN])


def test_rounding_ties(run):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, -0.2, 8388609.0], np.float32)
    assert unary(run, "round-nearest-even", "f32", x).tolist() == [
        0,
        2,
        2,
        -0.0,
        -2,
        0,
        -0.0,
        8388609,
    ]
    assert unary(run, "round-nearest-afz", "f32", x).tolist() == [1, 2, 3, -1, -2, 0, -0.0, 8388609]
    assert np.signbit(unary(run, "round-nearest-afz", "f32", x))[6]


def test_sign_keeps_zero_and_nan(run):
    x = np.array([3, -2, 0.0, -0.0, NAN, -INF], np.float32)
    got = unary(run, "sign", "f32", x)
    np.testing.assert_array_equal(got, [1, -1, 0, -0.0, NAN, -1])
    assert np.signbit(got).tolist()[:4] == [False, True, False, True]
    z = np.array([3 + 4j, 0], np.complex64)
    np.testing.assert_allclose(unary(run, "sign", "c64", z), [0.6 + 0.8j, 0], rtol=1e-6)


def test_float_remainder_has_the_sign_of_the_dividend(run):
    x, y = np.array([5.5, -5.5, 5.5, 1], np.float32), np.array([2, 2, -2, 0], np.float32)
    np.testing.assert_array_equal(binary(run, "remainder", "f32", x, y), [1.5, -1.5, 1.5, NAN])


def test_narrow_floats_round_once_per_operation(run):
    """(1 + 2^-8) + 2^-8 in bf16: each addition of 2^-8 to 1 is a tie that rounds back to 1."""
    bf16 = ml_dtypes.bfloat16
    one, small = np.array([1], bf16), np.array([2.0**-8], bf16)
    body = "x = bf16[1] parameter(0) y = bf16[1] parameter(1) a = bf16[1] add(x, y) ROOT b = bf16[1] add(a, y)"
    assert run(body, one, small)[0].tolist() == [1]
    # and exp is computed in f32: bf16's own neighbours of e are 2.703125 and 2.71875
    assert unary(run, "exponential", "bf16", one).tolist() == [2.71875]


def test_float8_overflow_and_rounding(run):
    x = np.array([448, 463, 465, -1e6, 0.0640], np.float32)
    got = unary(run, "convert", "f32", x, "f8e4m3fn").astype(np.float32)
    np.testing.assert_array_equal(got, [448, 448, NAN, NAN, 0.0625])


def test_convert_float_to_integer_saturates(run):
    x = np.array([1.9, -1.9, 3e9, -3e9, NAN, INF, 2147483520.0], np.float32)
    assert unary(run, "convert", "f32", x, "s32").tolist() == [
        1, -1, INT32_MAX, INT32_MIN, 0, INT32_MAX, 2147483520,
    ]  # fmt: skip
    assert unary(run, "convert", "f32", x, "u8").tolist() == [1, 0, 255, 0, 0, 255, 255]
    assert unary(run, "convert", "f32", x, "s4").astype(int).tolist() == [1, -1, 7, -8, 0, 7, 7]
    assert unary(run, "convert", "f32", x, "u64").tolist()[2:] == [
        3 * 10**9,
        0,
        0,
        2**64 - 1,
        2147483520,
    ]


def test_convert_between_integers_wraps_and_pred_is_nonzero(run):
    x = np.array([300, -1, 0, 128], np.int32)
    assert unary(run, "convert", "s32", x, "s8").tolist() == [44, -1, 0, -128]
    assert unary(run, "convert", "s32", x, "u16").tolist() == [300, 65535, 0, 128]
    assert unary(run, "convert", "s32", x, "pred").tolist() == [True, True, False, True]
    assert unary(run, "convert", "s32", x, "c64").tolist() == [300, -1, 0, 128]
    nan = np.array([NAN, 0.0, -0.0, 0.1], np.float32)
    assert unary(run, "convert", "f32", nan, "pred").tolist() == [True, False, False, True]


def test_total_order_compare(run):
    ordered = np.array([-NAN, -INF, -1, -0.0, 0.0, 1, INF, NAN], np.float32)
    ordered[0] = np.copysign(np.float32(NAN), np.float32(-1))
    x, y = np.repeat(ordered, 8), np.tile(ordered, 8)
    body = (
        "x = f32[64] parameter(0) y = f32[64] parameter(1)"
        " ROOT r = pred[64] compare(x, y), direction=LT, type=TOTALORDER"
    )
    want = (np.arange(8)[:, None] < np.arange(8)).reshape(-1)
    assert run(body, x, y)[0].tolist() == want.tolist()
    plain = "x = f32[64] parameter(0) y = f32[64] parameter(1) ROOT r = pred[64] compare(x, y), direction=LT"
    assert run(plain, x, y)[0].tolist() == [bool(a < b) for a, b in zip(x, y, strict=True)]


@pytest.mark.parametrize(
    ("exponent", "mantissa", "dtype"), [(8, 7, ml_dtypes.bfloat16), (5, 10, np.float16)]
)
def test_reduce_precision_equals_a_round_trip_through_the_narrow_type(
    run, rng, exponent, mantissa, dtype
):
    x = (rng.standard_normal(500) * 10.0 ** rng.integers(-3, 3, 500)).astype(np.float32)
    x[np.abs(x) < 1e-4] = 1  # denormals of f16 have their own test
    x[:4] = [INF, -INF, NAN, 1e6]
    body = (
        f"x = f32[500] parameter(0) ROOT r = f32[500] reduce-precision(x), exponent_bits={exponent},"
        f" mantissa_bits={mantissa}"
    )
    with np.errstate(over="ignore"):
        want = x.astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(run(body, x)[0], want)


def test_reduce_precision_flushes_small_numbers_to_zero(run):
    x = np.array([2.0**-14, 2.0**-15, -(2.0**-15)], np.float32)  # f16: least normal, denormal
    body = "x = f32[3] parameter(0) ROOT r = f32[3] reduce-precision(x), exponent_bits=5, mantissa_bits=10"
    got = run(body, x)[0]
    assert got.tolist() == [2.0**-14, 0, -0.0]
    assert np.signbit(got[2])


def test_erf_is_accurate():
    x = np.concatenate([np.linspace(-6.5, 6.5, 4001), [0.0, -0.0, 1e-300, INF, -INF]])
    want = np.array([math.erf(v) for v in x])
    with np.errstate(all="ignore"):
        assert np.all(np.abs(erf(x) - want) <= 4 * np.spacing(np.abs(want)))
        x32 = x.astype(np.float32)
        want32 = np.array([math.erf(float(v)) for v in x32], np.float32)
        assert np.all(np.abs(erf(x32) - want32) <= np.spacing(np.abs(want32)))
        assert np.isnan(erf(np.array([NAN], np.float32)))[0]


@pytest.mark.parametrize(
    ("opcode", "function"),
    [
        ("acos", math.acos), ("asin", math.asin), ("atanh", math.atanh), ("asinh", math.asinh), ("cosh", math.cosh),
        ("sinh", math.sinh), ("exponential", math.exp), ("exponential-minus-one", math.expm1), ("tan", math.tan),
        ("log", lambda v: math.log(v) if v > 0 else NAN), ("log-plus-one", math.log1p), ("cbrt", lambda v: math.copysign(abs(v) ** (1 / 3), v)),
        ("logistic", lambda v: 1 / (1 + math.exp(-v))), ("tanh", math.tanh), ("sine", math.sin), ("cosine", math.cos),
        ("erf", math.erf), ("rsqrt", lambda v: v**-0.5 if v > 0 else NAN), ("floor", math.floor), ("ceil", math.ceil),
    ],
)  # fmt: skip
def test_functions_against_the_math_module(run, opcode, function):
    x = np.linspace(-0.95, 0.95, 40).astype(np.float32)
    want = np.array([function(float(v)) for v in x])
    np.testing.assert_allclose(unary(run, opcode, "f32", x), want, rtol=5e-7, atol=1e-7)


def test_complex_parts_and_atan2(run):
    z = np.array([1 + 2j, -3j, NAN], np.complex64)
    np.testing.assert_array_equal(unary(run, "real", "c64", z, "f32"), z.real)
    np.testing.assert_array_equal(unary(run, "imag", "c64", z, "f32"), z.imag)
    np.testing.assert_allclose(unary(run, "abs", "c64", z[:2], "f32"), [math.sqrt(5), 3], rtol=1e-6)
    x, y = np.array([1, -1, 0, -0.0], np.float32), np.array([1, -1, -1, -1], np.float32)
    want = [math.atan2(a, b) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(binary(run, "atan2", "f32", x, y), want, rtol=1e-6)
    got = binary(run, "complex", "f32", x, y, "c64")
    np.testing.assert_array_equal(got, x + 1j * y)


def test_select_by_scalar_and_by_element(run):
    x, y = np.arange(4, dtype=np.float32), -np.ones(4, np.float32)
    body = "p = pred[4] parameter(0) x = f32[4] parameter(1) y = f32[4] parameter(2) ROOT r = f32[4] select(p, x, y)"
    assert run(body, np.array([True, False, True, False]), x, y)[0].tolist() == [0, -1, 2, -1]


def test_stochastic_convert_rounds_by_its_random_bits(run):
    x = np.array([1.25, 1.25, -1.25, 3.0], np.float32)
    bits = np.array([0, 2**31, 0, 0], np.uint32)
    body = (
        "x = f32[4] parameter(0) b = u32[4] parameter(1) ROOT r = s32[4] stochastic-convert(x, b)"
    )
    assert run(body, x, bits)[0].tolist() == [2, 1, -2, 3]


def same_parts(got, want):
    """Equal parts, NaN equal to NaN, zeros with their signs."""
    return all(
        repr((float(a.real), float(a.imag))) == repr((b.real, b.imag))
        for a, b in zip(got, want, strict=True)
    )


@pytest.mark.parametrize("kind", ["c64", "c128"])
def test_complex_functions_at_infinity_have_their_limits(run, kind):
    """logistic falls like exp, rsqrt to a zero on the conjugate's side; each part of sign is its own quotient."""
    dtype = {"c64": np.complex64, "c128": np.complex128}[kind]

    def at(opcode, *values):
        return unary(run, opcode, kind, np.array(values, dtype))

    left = (complex(-INF, 1), complex(-INF, -2))
    assert same_parts(at("logistic", *left), (complex(0.0, 0.0), complex(-0.0, -0.0)))
    up_and_down = (complex(0, INF), complex(1, -INF), complex(-INF, 0.0))
    want = (complex(0.0, -0.0), complex(0.0, 0.0), complex(0.0, -0.0))
    assert same_parts(at("rsqrt", *up_and_down), want)
    on_the_line = at("exponential-minus-one", complex(INF, 0.0), complex(NAN, -0.0))
    assert same_parts(on_the_line, (complex(INF, 0.0), complex(NAN, -0.0)))
    assert same_parts(at("sign", complex(1, INF)), (complex(0.0, NAN),))


def test_negative_powers_of_minus_one_keep_its_sign(run):
    x, y = np.array([-1, -1, 1, 2, 0], np.int32), np.array([-3, -(2**31), -7, -1, -1], np.int32)
    assert binary(run, "power", "s32", x, y).tolist() == [-1, 1, 1, 0, 0]


def test_denormals_are_rounded_at_their_own_unit(run):
    """f16 5.96e-8 is one unit: below half of what two mantissa bits leave."""
    x = np.array([2.0**-24, 3 * 2.0**-16, 2.0**-14], np.float16)
    body = "x = f16[3] parameter(0)\n ROOT r = f16[3] reduce-precision(x), exponent_bits=5, mantissa_bits=2"
    assert run(body, x)[0].tolist() == [0.0, 3 * 2.0**-16, 2.0**-14]
