"""Integer arithmetic with XLA's results where C defines none: division by zero, overflowing quotients, wide shifts."""

from __future__ import annotations

import numpy as np

from spmd.evaluator.value import NDArray


def _lowest(x: NDArray) -> int:
    return int(np.iinfo(x.dtype).min)


def divide(x: NDArray, y: NDArray) -> NDArray:
    """Return the quotient rounded to zero. x / 0 is -1 (all ones); lowest / -1 is lowest."""
    if x.dtype == np.bool_:
        return np.asarray(x | ~y)
    zero = y == 0
    safe = np.where(zero, y.dtype.type(1), y)
    if x.dtype.kind == "u":
        return np.where(zero, np.iinfo(x.dtype).max, x // safe)
    overflow = (x == _lowest(x)) & (y == -1)
    safe = np.where(overflow, y.dtype.type(1), safe)
    floor = x // safe
    inexact_negative = (floor * safe != x) & ((x < 0) != (safe < 0))
    quotient = floor + inexact_negative.astype(x.dtype)
    return np.asarray(np.where(zero, x.dtype.type(-1), quotient))


def remainder(x: NDArray, y: NDArray) -> NDArray:
    """Return the remainder with the sign of the dividend. x % 0 is x; lowest % -1 is 0."""
    if x.dtype == np.bool_:
        return np.asarray(x & ~y)
    zero = y == 0
    safe = np.where(zero, y.dtype.type(1), y)
    if x.dtype.kind == "i":
        minus_one = safe == -1
        safe = np.where(minus_one, y.dtype.type(1), safe)
    return np.where(zero, x, np.fmod(x, safe))


def power(x: NDArray, y: NDArray) -> NDArray:
    """Return x ** y modulo 2**bits; for y < 0 the exact value rounded to zero: 1 or -1 if x is, else 0 (0 **
    -1 too).
    """
    if x.dtype == np.bool_:
        return np.asarray(x | ~y)
    exponent = np.where(y < 0, y & y.dtype.type(1), y)  # for 1 and -1 the parity decides
    result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    base = np.broadcast_to(x, result.shape).copy()
    left = np.broadcast_to(exponent, result.shape).copy()
    while left.any():
        result = np.where(left & 1, result * base, result)
        base = base * base
        left >>= 1
    inverse = np.where((x == 1) | (x == -1), result, x.dtype.type(0))
    return np.where(y < 0, inverse, result)


def shift_left(x: NDArray, by: NDArray, bits: int) -> NDArray:
    """Shift left; 0 if the distance is negative or at least ``bits``."""
    inside = _in_range(by, bits)
    shifted = np.left_shift(x, np.where(inside, by, 0).astype(x.dtype))
    return np.asarray(np.where(inside, shifted, x.dtype.type(0)))


def shift_right_arithmetic(x: NDArray, by: NDArray, bits: int) -> NDArray:
    """Shift right, keeping the sign bit (of the same bits read as signed); all sign bits if the distance is out of
    range.
    """
    signed = x.view(f"i{x.dtype.itemsize}") if x.dtype.kind == "u" else x
    if bits < 8:  # the sign bit is not the byte's top bit
        unused = signed.dtype.type(8 - bits)
        signed = (signed << unused) >> unused
    distance = np.where(_in_range(by, bits), by, bits - 1).astype(signed.dtype)
    return np.asarray(np.right_shift(signed, distance)).view(x.dtype)


def shift_right_logical(x: NDArray, by: NDArray, bits: int) -> NDArray:
    """Shift right, inserting zeros; 0 if the distance is out of range."""
    inside = _in_range(by, bits)
    raw = _low_bits(x, bits)
    shifted = np.right_shift(raw, np.where(inside, by, 0).astype(raw.dtype))
    return np.asarray(np.where(inside, shifted, raw.dtype.type(0))).view(x.dtype)


def _in_range(by: NDArray, bits: int) -> NDArray:
    return np.asarray((by >= 0) & (by < bits))


def multiply_high(x: NDArray, y: NDArray, bits: int) -> NDArray:
    """Return the high half of the product, which has twice ``bits``."""
    if bits < 64:
        wide = np.dtype(f"{x.dtype.kind}8")
        return np.asarray((x.astype(wide) * y.astype(wide)) >> wide.type(bits)).astype(x.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    crossed = (a >> half) * (b & low) + (((a & low) * (b & low)) >> half)
    other = (a & low) * (b >> half) + (crossed & low)
    high = (a >> half) * (b >> half) + (crossed >> half) + (other >> half)
    if x.dtype.kind == "i":  # a negative factor counted as 2**64 more
        high -= np.where(x < 0, b, 0).astype(np.uint64) + np.where(y < 0, a, 0).astype(np.uint64)
    return np.asarray(high).astype(x.dtype)


def population_count(x: NDArray, bits: int) -> NDArray:
    """Count the one bits among the lowest ``bits``."""
    return np.asarray(np.bitwise_count(_low_bits(x, bits))).astype(x.dtype)


def count_leading_zeros(x: NDArray, bits: int) -> NDArray:
    """Count the zero bits above the highest one bit; ``bits`` for 0."""
    left = _low_bits(x, bits)
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < bits:
            left = left | (left >> left.dtype.type(shift))
    return np.asarray(bits - np.bitwise_count(left)).astype(x.dtype)


def _low_bits(x: NDArray, bits: int) -> NDArray:
    raw = x.view(f"u{x.dtype.itemsize}")
    return np.asarray(raw & raw.dtype.type((1 << bits) - 1))
