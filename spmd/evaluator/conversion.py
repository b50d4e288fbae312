"""Conversions between element types: convert, reduce-precision and bitcast-convert."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from spmd.evaluator.numerics import narrow, widen, wrap_integers
from spmd.evaluator.value import NDArray
from spmd.shape import IEEE_TYPES, PrimitiveType


def convert(x: NDArray, to: PrimitiveType) -> NDArray:
    """Return the elements of ``x`` as ``to``.

    Floating to integer rounds to zero, saturates, and makes NaN 0. Integer to integer wraps. Complex to real drops the
    imaginary part. Anything to pred is x != 0.
    """
    if x.dtype == to.numpy:
        return x
    wide = widen(x)
    if to is PrimitiveType.PRED:
        return np.asarray(wide != 0)
    if wide.dtype.kind == "c" and not to.is_complex:
        wide = wide.real
    if to.is_integer:
        return _saturate(wide, to) if wide.dtype.kind == "f" else wrap_integers(wide, to)
    if to is PrimitiveType.F8E8M0FNU:
        return _powers_of_two(wide.astype(np.float32), to)
    if wide.dtype.kind in "iub" and to.numpy.itemsize < 4:
        wide = wide.astype(np.float32)
    return wide.astype(to.numpy)


def _powers_of_two(x: NDArray, to: PrimitiveType) -> NDArray:
    """Return the nearest powers of two; NaN for zero, negative and too large numbers.

    Ties are rounded to the larger power, except below 2^-126, where XLA rounds up all that is larger than 2^-127.
    ml_dtypes rounds those to the nearest power from version 0.7 on, and to the least one what is 0 in f32.
    """
    bits = x.view(np.int32).astype(np.int64)
    codes = (bits + np.where(bits < 1 << 23, (1 << 22) - 1, 1 << 22)) >> 23
    codes = np.where((bits <= 0) | (codes > 255), 255, codes)
    return codes.astype(np.uint8).view(to.numpy)


def _saturate(x: NDArray, to: PrimitiveType) -> NDArray:
    signed = to.is_signed_integer
    low = -(2 ** (to.bits - 1)) if signed else 0
    high = 2 ** (to.bits - 1 if signed else to.bits) - 1
    compute = np.dtype(f"{'i' if signed else 'u'}{max(to.byte_size, 1)}")
    # 2.0**k is exact in every floating type that reaches it; high = 2**k - 1 often is not.
    over, under = x >= float(high + 1), x <= float(low)
    inside = np.where(over | under | np.isnan(x), 0, x)
    result = np.trunc(inside).astype(compute)
    result = np.where(over, compute.type(high), np.where(under, compute.type(low), result))
    return narrow(result, to.numpy)


def reduce_precision(x: NDArray, exponent_bits: int, mantissa_bits: int) -> NDArray:
    """Round (to nearest even) to a float with these bits; overflow gives inf, underflow a zero (no denormals).

    NaN stays NaN unless no mantissa bit is left; then it is inf. Formats laid out as IEEE 754's are rounded in their
    own bits, so their denormals at their fixed unit; the others (fn, fnuz, f4, f8e8m0fnu) in f32.
    """
    has_mantissa, has_exponent = _float_bits(x)
    own = PrimitiveType.from_numpy(x.dtype) in IEEE_TYPES
    wide = np.ascontiguousarray(x if own else x.astype(np.float32))
    width = wide.dtype.itemsize * 8
    mantissa, exponent = (has_mantissa, has_exponent) if own else (23, 8)
    bits = wide.view(f"u{width // 8}")
    one = bits.dtype.type(1)
    if mantissa_bits < has_mantissa:
        drop = bits.dtype.type(mantissa - mantissa_bits)
        last = (bits >> drop) & one
        half = (one << (drop - one)) - one
        bits = (bits + last + half) & ~((one << drop) - one)
    if exponent_bits < has_exponent:
        bias, small_bias = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        field = (bits >> bits.dtype.type(mantissa)) & bits.dtype.type((1 << exponent) - 1)
        signed_zero = bits & (one << bits.dtype.type(width - 1))
        infinity = signed_zero | bits.dtype.type(((1 << exponent) - 1) << mantissa)
        bits = np.where(field > bias + small_bias, infinity, bits)
        bits = np.where(field <= bias - small_bias, signed_zero, bits)
    result = bits.view(wide.dtype)
    nan = wide if mantissa_bits > 0 else np.full_like(wide, np.inf)
    return np.where(np.isnan(wide), nan, result).reshape(x.shape).astype(x.dtype)


def _float_bits(x: NDArray) -> tuple[int, int]:
    """Return the mantissa and exponent bits of x's floating type."""
    info = ml_dtypes.finfo(x.dtype)  # type: ignore[no-untyped-call]
    return int(info.nmant), int(info.nexp)


def bitcast_convert(
    x: NDArray, to: PrimitiveType, dims: tuple[int, ...], bits_from: int
) -> NDArray:
    """Return the same bits as type ``to`` and sizes ``dims``; a trailing dimension is added or removed if widths
    differ.

    The first element of that dimension holds the lowest bits. Sub-byte types are packed in memory as XLA defines them,
    although arrays here hold one element per byte.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    if bits_from >= 8 and to.bits >= 8:
        return flat.view(to.numpy).reshape(dims)
    if bits_from == to.bits:
        return _unpacked(flat.view(np.uint8) & np.uint8((1 << to.bits) - 1), to).reshape(dims)
    raw = _to_bytes(flat, bits_from)
    return _from_bytes(raw, to).reshape(dims)


def _to_bytes(flat: NDArray, bits: int) -> NDArray:
    if bits >= 8:
        return flat.view(np.uint8)
    per_byte = 8 // bits
    parts = (flat.view(np.uint8) & np.uint8((1 << bits) - 1)).reshape(-1, per_byte)
    shifts = (np.arange(per_byte) * bits).astype(np.uint8)
    return np.asarray(np.bitwise_or.reduce(parts << shifts, axis=1)).astype(np.uint8)


def _from_bytes(raw: NDArray, to: PrimitiveType) -> NDArray:
    if to.bits >= 8:
        return raw.view(to.numpy)
    per_byte = 8 // to.bits
    shifts = (np.arange(per_byte) * to.bits).astype(np.uint8)
    parts = (raw[:, None] >> shifts) & np.uint8((1 << to.bits) - 1)
    return _unpacked(parts.reshape(-1), to)


def _unpacked(patterns: NDArray, to: PrimitiveType) -> NDArray:
    """Return the elements of a sub-byte type from their bits, one element per byte."""
    return wrap_integers(patterns, to) if to.is_integer else patterns.view(to.numpy)
