"""Arithmetic and comparisons of complex numbers, and the registry of complex functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TypeAlias

from runtime.codegen.elements.builder import Bool, Code, Float, Int, Lines
from runtime.codegen.elements.common import scaled
from runtime.codegen.elements.complex_numbers import Complex
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.values import typed
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.registry import Registry
from spmd.shape import COMPLEX_OF, COMPLEX_PARTS, PrimitiveType

#: Function of complex and real numbers that returns a complex number, a real one or a condition.
ComplexFunction: TypeAlias = "Callable[..., Complex | Float | Bool]"

COMPLEX_FUNCTIONS: Registry[Opcode, ComplexFunction] = Registry("function of complex numbers")
COMPLEX_FUNCTIONS.import_at_need(
    {
        "runtime.codegen.elements.complex_functions": (
            Opcode.EXPONENTIAL_MINUS_ONE,
            Opcode.LOG_PLUS_ONE,
            Opcode.RSQRT,
            Opcode.SIGN,
            Opcode.LOGISTIC,
            Opcode.SINH,
            Opcode.COSH,
            Opcode.SINE,
            Opcode.COSINE,
            Opcode.TANH,
            Opcode.TAN,
            Opcode.POWER,
            Opcode.EXPONENTIAL,
            Opcode.LOG,
            Opcode.SQRT,
        ),
    }
)


def complex_lines(signature: ElementSignature, instructions: Instructions) -> Lines | None:
    """Return the lines of an operation with complex operands or a complex result; all other numbers must be f32 or f64.

    Returns None if there is no function for the operation.
    """
    function = COMPLEX_FUNCTIONS.get(signature.opcode)
    kinds = signature.operands
    if signature.opcode is Opcode.COMPARE:
        function = _comparison(signature)
    if function is None or not all(k in COMPLEX_PARTS or k in COMPLEX_OF for k in kinds):
        return None
    code = Code(instructions)
    operands = (
        _operand(code, kind, f"%{letter}") for kind, letter in zip(kinds, "abc", strict=False)
    )
    result = function(*operands)
    if isinstance(result, Complex):
        return code.lines(result.element())
    return code.lines(result)


def _operand(code: Code, kind: PrimitiveType, name: str) -> Complex | Float:
    number: Float | Int = typed(code, wide_type(kind), name)
    return Complex.of(number) if isinstance(number, Int) else number


@COMPLEX_FUNCTIONS.register(Opcode.REAL)
def real(x: Complex | Float) -> Float:
    return x.re if isinstance(x, Complex) else x


@COMPLEX_FUNCTIONS.register(Opcode.IMAG)
def imag(x: Complex) -> Float:
    return x.im


def _comparison(signature: ElementSignature) -> ComplexFunction | None:
    """Return the function that compares complex numbers, which are equal if both parts are; None for an order."""
    attrs = signature.attrs
    assert isinstance(attrs, CompareAttrs)
    if attrs.direction not in ("EQ", "NE"):
        return None

    def compared(x: Complex, y: Complex) -> Bool:
        same = x.re.equals(y.re) & x.im.equals(y.im)
        return same if attrs.direction == "EQ" else ~same

    return compared


@COMPLEX_FUNCTIONS.register(Opcode.ABS)
def absolute(x: Complex) -> Float:
    """Compute |x|, which is infinite if a part is infinite, even if the other part is nan."""
    re, im = x.re.abs(), x.im.abs()
    either = re.equals(math.inf) | im.equals(math.inf)
    return either.choose(re.constant(math.inf), length(x))


def length(x: Complex) -> Float:
    """Compute sqrt(re^2 + im^2).

    Parts of f32 are squared in f64, where nothing overflows. For f64 it computes large * sqrt(1 + (small / large)^2).
    """
    re, im = x.re.abs(), x.im.abs()
    if x.format is F32:
        wide = x.to(F64)
        return (wide.re * wide.re + wide.im * wide.im).sqrt().to(F32)
    large, small = _extremes(re, im)
    ratio = small / large
    scaled_root = large * (ratio * ratio + 1.0).sqrt()
    return large.equals(0.0).choose(large, scaled_root)


def _extremes(a: Float, b: Float) -> tuple[Float, Float]:
    """Return the larger and the smaller number. Both are nan if one is."""
    first = a.is_nan() | (a > b)
    second = a.is_nan() | (a < b)
    return first.choose(a, b), second.choose(a, b)


def exponent_of(x: Complex) -> Int:
    """Return e such that the larger part of an f64 complex is in [2^(e - 1), 2^e); 0 if it is zero or not finite."""
    size, _ = _extremes(x.re.abs(), x.im.abs())
    small = size < F64.least_normal
    up = small.choose(size * 2.0**54, size)
    e = (up.bits() >> F64.mantissa) - (F64.bias - 1) - small.select(up.bits().constant(54), 0)
    usual = (size > 0.0) & (size < math.inf)
    return usual.select(e, 0)


def times_power(x: Complex, exponent: Int) -> Complex:
    """Compute x * 2^exponent."""
    return Complex(scaled(x.re, exponent), scaled(x.im, exponent))


def divide(x: Complex, y: Complex) -> Complex:
    """Compute the quotient by R. L. Smith's algorithm, in f64 if the parts are f32.

    If the parts are f64, both numbers are scaled by powers of two before, so that no intermediate value overflows.
    """
    if x.format is F32:
        return _smith(x.to(F64), y.to(F64)).to(F32)
    above, below = exponent_of(x), exponent_of(y)
    quotient = _smith(
        times_power(x, above.constant(0) - above), times_power(y, below.constant(0) - below)
    )
    exponent = above - below
    half = exponent.signed_shift(1)
    return times_power(times_power(quotient, half), exponent - half)


def _smith(x: Complex, y: Complex) -> Complex:
    """Divide by R. L. Smith's "Algorithm 116: Complex division", 1962. If y is zero, divide the parts of x by zero."""
    size_re, size_im = y.re.abs(), y.im.abs()
    wide = size_re >= size_im
    large, small = wide.choose(y.re, y.im), wide.choose(y.im, y.re)
    first, second = wide.choose(x.re, x.im), wide.choose(x.im, x.re)
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    re = (first + second * ratio) * scale
    cross = first * ratio
    im = wide.choose(second - cross, cross - second) * scale
    zero = size_re.equals(0.0) & size_im.equals(0.0)
    return Complex(zero.choose(x.re / size_re, re), zero.choose(x.im / size_re, im))


_FUNCTIONS: dict[Opcode, ComplexFunction] = {
    Opcode.ADD: operator.add,
    Opcode.SUBTRACT: operator.sub,
    Opcode.NEGATE: operator.neg,
    Opcode.MULTIPLY: operator.mul,
    Opcode.DIVIDE: divide,
    Opcode.COMPLEX: Complex,
}
for _opcode, _function in _FUNCTIONS.items():
    COMPLEX_FUNCTIONS.add(_opcode, _function)
