"""Sine, cosine and tangent: x = n pi / 2 + r with |r| <= pi / 4, for arguments of every size, without branches.

Only n modulo 4 matters. x * 2 / pi = n + 2 r / pi is therefore computed as in M. H. Payne, R. N. Hanek, "Radian
reduction for trigonometric functions", 1983: bits of 2 / pi whose products with x are multiples of 4 are left out, so
that a few products of x with parts of the other bits have all necessary digits. Here the parts are floating-point
numbers, and x - 4 round(x / 4) removes whole turns exactly.
"""

from __future__ import annotations

import math

from runtime.codegen.elements import constants
from runtime.codegen.elements.builder import Bool, Float, Int
from runtime.codegen.elements.common import (
    fast_two_sum,
    least,
    nearest_integer,
    polynomial,
    product_error,
    two_sum,
    with_flipped_sign,
)
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from spmd.hlo import Opcode

_EXPONENT_RANGES = (
    (27, constants.QUARTER_TURNS_FROM_27),
    (52, constants.QUARTER_TURNS_FROM_52),
    (77, constants.QUARTER_TURNS_FROM_77),
    (102, constants.QUARTER_TURNS_FROM_102),
)
_TABLE = "quarter_turns_f64"
_TABLE_SIZE = len(constants.QUARTER_TURNS_F64)
_TABLE_IR = (
    f"@{_TABLE} = internal unnamed_addr constant [{_TABLE_SIZE} x double] ["
    + ", ".join(f"double {F64.literal(value)}" for value in constants.QUARTER_TURNS_F64)
    + "]"
)


def _without_turns(x: Float) -> Float:
    """Reduce x modulo 4 to [-2, 2] exactly."""
    return (x * 0.25).rounded().times_plus(-4.0, x)


def reduced_f32(x: Float) -> tuple[Float, Int]:
    """Return (r, n) of an f32, where r is an f64. Products of 24 and 29 bits are exact in f64."""
    wide = x.to(F64)
    size = wide.abs()
    first, second, third = (wide.constant(part) for part in constants.QUARTER_TURNS_FROM_0)
    for low, parts in _EXPONENT_RANGES:
        inside = size >= 2.0**low
        first = inside.choose(first.constant(parts[0]), first)
        second = inside.choose(second.constant(parts[1]), second)
        third = inside.choose(third.constant(parts[2]), third)
    coarse = _without_turns(wide * first)
    fine = _without_turns(wide * second)
    nearest, n = nearest_integer(coarse + fine)
    turns = wide.times_plus(third, (coarse - nearest) + fine)
    return turns * constants.HALF_PI[0], n


def reduced_f64(x: Float) -> tuple[Float, Float, Int]:
    """Return (r, rounding error of r, n) of an f64.

    x is multiplied by four parts of 53 bits, which a table gives by the exponent; products keep their rounding errors.
    """
    x = (x.abs() < math.inf).choose(x, x.constant(math.nan))
    bits = x.bits()
    exponent = ((bits >> 52) & 2047) - F64.bias
    row = exponent.compared("slt", 0).select(exponent.constant(0), least(exponent, 1023)) >> 5
    parts = [_table_entry((row << 2) + k) for k in range(4)]
    small = (bits - (row << (5 + 52))).as_float(
        F64
    )  # x 2^(-32 row): the table has the inverse factor
    small = x.is_nan().choose(x, small)
    first, second, third = (small * part for part in parts[:3])
    errors = [
        product_error(small, part, product)
        for part, product in zip(parts, (first, second, third), strict=False)
    ]
    turns, below = two_sum(_without_turns(first), _without_turns(errors[0]))
    turns, lost = two_sum(turns, _without_turns(second))
    nearest, n = nearest_integer(turns)
    turns = turns - nearest
    rest = small.times_plus(parts[3], errors[2])
    for term in (below, lost, errors[1], third):
        turns, lost = two_sum(turns, term)
        rest = rest + lost
    turns, rest = fast_two_sum(turns, rest)
    high, low = constants.HALF_PI
    r = turns * high
    error = product_error(turns, turns.constant(high), r)
    return r, error + turns.times_plus(low, rest * high), n


def _table_entry(index: Int) -> Float:
    code = index.code
    if _TABLE_IR not in code.globals:
        code.globals.append(_TABLE_IR)
    entry = code.append(
        f"getelementptr [{_TABLE_SIZE} x double], ptr @{_TABLE}, i64 0, i64 {index.name}"
    )
    return Float(code, F64, code.append(f"load double, ptr {entry}"))


def _sine_in_two(r: Float, low: Float) -> tuple[Float, Float]:
    """Return sin(r + low) and its rounding error."""
    u = r * r
    tail = polynomial(constants.SINE_F64, u) * (u * r)
    return fast_two_sum(r, u.times_plus(low * -0.5, low) + tail)


def _cosine_in_two(r: Float, low: Float) -> tuple[Float, Float]:
    """Return cos(r + low) and its rounding error. The rounding error of 1 - u / 2 is part of the tail."""
    head, lost, u = _one_minus_half_square(r)
    tail = polynomial(constants.COSINE_F64, u).times_plus(u * u, lost)
    return fast_two_sum(head, tail - r * low)


def _short_sine(r: Float) -> Float:
    """Compute sin(r) to the accuracy of f32, in the format of r."""
    u = r * r
    return r + polynomial(constants.SINE_F32, u) * (u * r)


def _short_cosine(r: Float) -> Float:
    head, lost, u = _one_minus_half_square(r)
    return head + polynomial(constants.COSINE_F32, u).times_plus(u * u, lost)


def _one_minus_half_square(r: Float) -> tuple[Float, Float, Float]:
    """Return (1 - u / 2, its rounding error, u) with u = r^2."""
    u = r * r
    half = u * 0.5
    head = 1.0 - half
    return head, (1.0 - head) - half, u


def _both(x: Float) -> tuple[Float, Float, Int]:
    """Return (sin(r), cos(r), n), computed in the format of x."""
    if x.format is F32:
        r, n = reduced_f32(x)
        return _short_sine(r.to(F32)), _short_cosine(r.to(F32)), n
    r, low, n = reduced_f64(x)
    return _sine_in_two(r, low)[0], _cosine_in_two(r, low)[0], n


def sine_and_cosine(x: Float) -> tuple[Float, Float]:
    """Return sin(x) and cos(x) in f64.

    An f64 is computed to about one unit of the last place, and an f32 more accurately than an f32 result.
    """
    if x.format is F32:
        r, n = reduced_f32(x)
        low = r.constant(0.0)
    else:
        r, low, n = reduced_f64(x)
    sin, cos, odd = _sine_in_two(r, low)[0], _cosine_in_two(r, low)[0], _is_odd(n)
    wide = x.to(F64)
    sine_ = with_flipped_sign(odd.choose(cos, sin), _sign(n, wide))
    return _itself_where_tiny(wide, sine_), with_flipped_sign(
        odd.choose(sin, cos), _sign(n + 1, wide)
    )


def _is_odd(n: Int) -> Bool:
    return (n & 1).compared("ne", 0)


def _sign(n: Int, x: Float) -> Int:
    """Return the second lowest bit of n, by which the sign flips, in the integer type of x."""
    return ((n >> 1) & 1).resized(x.format.integer)


def _itself_where_tiny(x: Float, result: Float) -> Float:
    """Return x if sin(x) and tan(x) round to x, else ``result``. This keeps -0 and the digits of denormals."""
    return (x.abs() < 2.0 ** -(x.format.mantissa // 2 + 2)).choose(x, result)


@FLOAT_FUNCTIONS.register((Opcode.SINE, F32), (Opcode.SINE, F64))
def sine(x: Float) -> Float:
    sin, cos, n = _both(x)
    result = with_flipped_sign(_is_odd(n).choose(cos, sin), _sign(n, x))
    return _itself_where_tiny(x, result)


@FLOAT_FUNCTIONS.register((Opcode.COSINE, F32), (Opcode.COSINE, F64))
def cosine(x: Float) -> Float:
    sin, cos, n = _both(x)
    return with_flipped_sign(_is_odd(n).choose(sin, cos), _sign(n + 1, x))


@FLOAT_FUNCTIONS.register((Opcode.TAN, F32))
def tan_f32(x: Float) -> Float:
    """Compute tan in f64 by the polynomials of f32, because a quotient of sines in f32 loses over a unit."""
    r, n = reduced_f32(x)
    result = _tangent(_short_sine(r), _short_cosine(r), n).to(F32)
    return _itself_where_tiny(x, result)


@FLOAT_FUNCTIONS.register((Opcode.TAN, F64))
def tan_f64(x: Float) -> Float:
    """Compute sin / cos, or -cos / sin if n is odd, from two-term sums."""
    r, low, n = reduced_f64(x)
    (sin, sin_lost), (cos, cos_lost) = _sine_in_two(r, low), _cosine_in_two(r, low)
    odd = _is_odd(n)
    above, above_lost = odd.choose(cos, sin), odd.choose(cos_lost, sin_lost)
    below, below_lost = odd.choose(sin, cos), odd.choose(sin_lost, cos_lost)
    inverse = 1.0 / below
    quotient = above * inverse
    product = quotient * below
    rest = (above - product) - product_error(quotient, below, product)
    rest = rest + (above_lost - quotient * below_lost)
    result = rest.times_plus(inverse, quotient)
    return _itself_where_tiny(x, with_flipped_sign(result, n & 1))


def _tangent(sin: Float, cos: Float, n: Int) -> Float:
    odd = _is_odd(n)
    return with_flipped_sign(odd.choose(cos, sin) / odd.choose(sin, cos), n & 1)
