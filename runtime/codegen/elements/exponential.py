"""Exponential, exponential-minus-one and logistic function.

The argument is reduced as x = n ln(2) + r with |r| <= ln(2) / 2. ln(2) is split into two parts, of which n times the
first is exact (W. J. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980). The result is exp(x) = 2^n
exp(r), where 2^n is applied in two steps, so that no intermediate value overflows or is rounded as a denormal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from runtime.codegen.elements import constants
from runtime.codegen.elements.approximations import approximate_exp2, saturated
from runtime.codegen.elements.builder import Float, Int
from runtime.codegen.elements.common import (
    clamped,
    fast_two_sum,
    nearest_integer,
    polynomial,
    power_of_two,
    scaled,
)
from runtime.codegen.elements.formats import BF16, F32, F64, FloatFormat
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from runtime.codegen.elements.table import picked
from spmd.hlo import Opcode

_EXPM1_POLYNOMIALS = {F32: constants.EXP_F32, F64: constants.EXP_F64}
_LN2 = {F32: constants.LN2_F32, F64: constants.LN2_F64}
#: 2^(i / 32) for i from 0 to 31.
_ROOTS = tuple(2 ** (i / 32) for i in range(32))
#: Bounds, by format, below which exp is 0 and above which it is infinite. For arguments between them
#: the integer n is in the range of all operations with it.
_RANGE = {F32: (-104.0, 89.0), F64: (-746.0, 710.0)}


def reduced(x: Float) -> tuple[Float, Float, Int]:
    """Return (r, rounding error of r, n) for |x| < 2^(mantissa - 2), where x = n ln(2) + r."""
    n, integer = nearest_integer(x * (1 / math.log(2)))
    high, low = _LN2[x.format]
    exact = n.times_plus(-high, x)
    r = n.times_plus(-low, exact)
    return r, n.times_plus(-low, exact - r), integer


def exp_between(x: Float, exponent: int = 0, low: Float | None = None) -> Float:
    """Compute exp(x + low) * 2^exponent for x in the range where exp is neither 0 nor infinite, or slightly beyond."""
    r, _, n = reduced(x)
    r = r if low is None else r + low
    return scaled(1.0 + (r + _expm1_tail(r)), n + exponent)


def exp_normal(x: Float) -> Float:
    """Compute exp(x) if it is a normal number below 2^bias, so that 2^n can be applied in one step."""
    r, _, n = reduced(x)
    return (1.0 + (r + _expm1_tail(r))) * power_of_two(n, x.format)


def exp_halved(x: Float) -> Float:
    """Compute exp(x) / 2 for x >= 0, which is finite for slightly larger x than exp(x)."""
    high = _RANGE[x.format][1] + 1
    return exp_between((x > high).choose(x.constant(high), x), -1)


def exp_by_instruction(x: Float) -> Float:
    """Compute exp(x) of an f32 as 2^n 2^r by the processor's 2^r, as CUDA's expf does.

    NVIDIA states an error of at most two units in the last place (CUDA C++ Programming Guide, mathematical functions).
    n is between -126 and 126, so that 2^n is a normal number; beyond, 2^r takes what is left, and the product is
    infinite, zero or rounded once to a denormal.
    """
    most = 126
    magic = 1.5 * 2.0**F32.mantissa + (F32.bias - most)
    share = x.fused_times_plus(x.constant(1 / math.log(2) / (2 * most)), x.constant(0.5))
    shifted = saturated(share).fused_times_plus(x.constant(2.0 * most), x.constant(magic))
    n = shifted - (magic + most)
    high, low = constants.LOG2_E_F32
    r = x.fused_times_plus(x.constant(low), x.fused_times_plus(x.constant(high), -n))
    return approximate_exp2(r) * (shifted.bits() << F32.mantissa).as_float(F32)


@FLOAT_FUNCTIONS.register((Opcode.EXPONENTIAL, F32), (Opcode.EXPONENTIAL, F64))
def exponential(x: Float) -> Float:
    if x.format is F32 and x.code.instructions.approximates:
        return exp_by_instruction(x)
    high = _RANGE[x.format][1]
    tabulated = x.format is F32 and x.code.instructions.permutes
    between = _exp_by_table if tabulated else exp_between
    return exp_below((x > high).choose(x.constant(high), x), between)


def _exp_by_table(x: Float) -> Float:
    """Compute ``exp_between`` for f32 with a table: exp((32 n + i) ln(2) / 32 + r) = 2^n 2^(i / 32) exp(r)."""
    magic = 1.5 * 2.0**F32.mantissa
    shifted = x.times_plus(len(_ROOTS) / math.log(2), magic)
    steps, bits = shifted - magic, shifted.bits()
    high, low = constants.LN2_32ND_F32
    r = steps.times_plus(-low, steps.times_plus(-high, x))
    grown = r.times_plus(1 / 6, 0.5).times_plus(r * r, r)
    root = picked("exp_roots", _ROOTS, bits)
    n = (bits - F32.bits_of(magic)).signed_shift(5)
    return scaled(root.times_plus(grown, root), n)


def exp_below(x: Float, between: Callable[[Float], Float] = exp_between) -> Float:
    """Compute exp(x) for x below the upper bound by ``between``.

    Arguments whose result underflows are replaced before, because products with denormals are slow.
    """
    zero = x < _RANGE[x.format][0]
    return zero.choose(x.constant(0.0), between(zero.choose(x.constant(0.0), x)))


@FLOAT_FUNCTIONS.register((Opcode.EXPONENTIAL, BF16))
def exponential_bf16(x: Float) -> Float:
    if x.code.instructions.approximates:
        return exp_by_instruction(x)
    high = _RANGE[F32][1]
    return exp_below((x > high).choose(x.constant(high), x), _exp_short)


def _exp_short(x: Float) -> Float:
    """Compute ``exp_between`` in f32 to a relative error of 2^-18."""
    n, integer = nearest_integer(x * (1 / math.log(2)))
    r = n.times_plus(-math.log(2), x)
    return scaled(polynomial(constants.EXP_BF16, r).times_plus(r, 1.0), integer)


def _expm1_tail(r: Float) -> Float:
    """Compute exp(r) - 1 - r."""
    return polynomial(_EXPM1_POLYNOMIALS[r.format], r) * (r * r)


@FLOAT_FUNCTIONS.register((Opcode.EXPONENTIAL_MINUS_ONE, F32), (Opcode.EXPONENTIAL_MINUS_ONE, F64))
def expm1(x: Float) -> Float:
    """Compute exp(x) - 1 as (2^n - 1) + 2^n r, a two-term sum, plus 2^n (exp(r) - 1 - r).

    All terms are halved until the end, so that the largest n does not overflow.
    """
    fmt = x.format
    r, r_low, n = reduced(clamped(x, _least_expm1(fmt), _RANGE[fmt][1]))
    half = power_of_two(n - 1, fmt)
    total, lost = fast_two_sum(half - 0.5, half * r)
    result = (total + (_expm1_tail(r) + r_low).times_plus(half, lost)) * 2.0
    return (x.abs() < 2.0 ** -(fmt.mantissa + 2)).choose(x, result)


def _least_expm1(fmt: FloatFormat) -> float:
    """Return an argument below which exp(x) - 1 rounds to -1."""
    return -math.ceil((fmt.mantissa + 2) * math.log(2))


@FLOAT_FUNCTIONS.register((Opcode.LOGISTIC, F32), (Opcode.LOGISTIC, F64))
def logistic(x: Float) -> Float:
    """Compute q = E / (1 + E) with E = exp(-|x|), which does not overflow, and 1 - q for positive x.

    The rounding error of the sum 1 + E is corrected by q (1 - error / sum), where 1 / sum is 1 - q.
    """
    small = exp_below(-x.abs())
    total, lost = fast_two_sum(x.constant(1.0), small)
    q = small / total
    q = (q * lost).times_plus(q - 1.0, q)
    return (x < 0.0).choose(q, 1.0 - q)


@FLOAT_FUNCTIONS.register((Opcode.LOGISTIC, BF16))
def logistic_bf16(x: Float) -> Float:
    small = exp_below(-x.abs(), _exp_short)
    return (x < 0.0).choose(small, 1.0) / (1.0 + small)
