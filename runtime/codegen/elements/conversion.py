"""The operations convert, bitcast-convert and reduce-precision."""

from __future__ import annotations

import math

from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.formats import BF16, F16, F32, F64, FloatFormat
from runtime.codegen.elements.registry import BODIES, body_of
from runtime.codegen.elements.storage import stored_type, wide_type
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.hlo.opcode import ReducePrecisionAttrs
from spmd.shape import PrimitiveType


@BODIES.register(Opcode.CONVERT)
def conversion(signature: ElementSignature) -> str | None:
    """Convert a number to another type.

    Floats become integers by truncation and saturate; nan becomes 0. The pred of a number is whether it is not 0.
    """
    (source,), target = signature.operands, signature.result
    s, t = wide_type(source), wide_type(target)
    if target is PrimitiveType.PRED:
        other = "une" if source.is_floating else "ne"
        return body_of(signature, lambda x: x.compared(other, 0))
    if source.is_floating and target.is_integer:
        letter = "s" if target.is_signed_integer else "u"
        suffix = {"float": "f32", "double": "f64"}[s]
        own = f"i{target.bits}"
        call = f"call {own} @llvm.fpto{letter}i.sat.{own}.{suffix}({s} %a)"
        if own == t:
            return f"%r = {call}"
        extended = "sext" if target.is_signed_integer else "zext"
        return f"%own = {call}\n  %r = {extended} {own} %own to {t}"
    if source.is_floating and target.is_floating:
        if source is PrimitiveType.F64 and target is PrimitiveType.F16:
            return body_of(signature, _rounded_to_odd)
        return body_of(signature, lambda x: x.to(F64 if target is PrimitiveType.F64 else F32))
    signed = source.is_signed_integer
    if target.is_floating:
        return f"%r = {'s' if signed else 'u'}itofp {s} %a to {t}"
    return body_of(signature, lambda x: x.resized(t, signed=signed))


@BODIES.register(Opcode.BITCAST_CONVERT)
def bitcast_conversion(signature: ElementSignature) -> str | None:
    """Reinterpret bits as a type of the same width. Both types must be computed as they are stored."""
    (source,), target = signature.operands, signature.result
    if PrimitiveType.PRED in (source, target) or source.byte_size != target.byte_size:
        return None
    if any(stored_type(kind) != wide_type(kind) for kind in (source, target)):
        return None
    return f"%r = bitcast {wide_type(source)} %a to {wide_type(target)}"


def _rounded_to_odd(x: Float) -> Float:
    """Round f64 to f32 such that rounding the result to f16 equals rounding x to f16 (S. Boldo, G. Melquiond, 2005).

    The evaluator rounds twice when it converts f64 to other narrow formats, and so does this code.
    """
    rounded = x.to(F32)
    back = rounded.to(F64)
    inexact = (back < x) | (back > x)
    overshot = back.abs() > x.abs()
    truncated = overshot.select(rounded.bits() - 1, rounded.bits())
    return inexact.select(truncated | 1, rounded.bits()).as_float(F32)


@BODIES.register(Opcode.REDUCE_PRECISION)
def reduce_precision(signature: ElementSignature) -> str | None:
    """Round to nearest, ties to even, in the bits of the operand's format.

    Numbers beyond the exponent range become infinite, and numbers that would be denormal become zero.
    """
    attrs, kind = signature.attrs, signature.result
    assert isinstance(attrs, ReducePrecisionAttrs)
    # f16 has denormal numbers; f32, in which it is computed, has none of that size.
    fmt = {PrimitiveType.F16: F16, PrimitiveType.F64: F64}.get(kind, F32)
    stored = F16 if kind is PrimitiveType.F16 else BF16 if kind is PrimitiveType.BF16 else fmt
    if not kind.is_floating or kind.bits < 16:
        return None
    return body_of(signature, lambda x: _reduced(x, fmt, stored, attrs))


def _reduced(x: Float, fmt: FloatFormat, stored: FloatFormat, attrs: ReducePrecisionAttrs) -> Float:
    """Round in the bits of ``fmt``.

    Mantissa or exponent bits of which ``attrs`` has as many as the format ``stored``, or more, are not reduced.
    """
    bits, one = x.to(fmt).bits(), 1
    sign = bits & (one << (fmt.bits - 1))
    if attrs.mantissa_bits < stored.mantissa:
        drop = fmt.mantissa - attrs.mantissa_bits
        last = (bits >> drop) & 1
        bits = (bits + last + ((one << (drop - 1)) - 1)) & -(one << drop)
    if attrs.exponent_bits < stored.exponent:
        small_bias = (1 << (attrs.exponent_bits - 1)) - 1
        field = (bits >> fmt.mantissa) & ((1 << fmt.exponent) - 1)
        infinity = sign | (((1 << fmt.exponent) - 1) << fmt.mantissa)
        bits = field.compared("ugt", fmt.bias + small_bias).select(infinity, bits)
        bits = field.compared("ule", fmt.bias - small_bias).select(sign, bits)
    result = bits.as_float(fmt).to(x.format)
    nan = x if attrs.mantissa_bits > 0 else x.constant(math.inf)
    return x.is_nan().choose(nan, result)
