"""Floating-point numbers in text: enough digits to come back bit for bit, and nans with their payloads."""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np

from spmd.literal import NDArray
from spmd.shape import IEEE_TYPES, PrimitiveType

_NAN = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]{1,16})\))?")


class FloatFormat:
    """Bits of a floating-point type: its mantissa, its nan payload, and the decimal digits that tell all values apart
    (``max_digits10``, as in C++).
    """

    __slots__ = (
        "bits",
        "dtype",
        "has_payload",
        "has_signed_nan",
        "mantissa",
        "max_digits10",
        "nan",
        "unsigned",
    )

    def __init__(self, kind: PrimitiveType) -> None:
        self.dtype = kind.numpy
        self.bits = kind.byte_size * 8
        self.unsigned: np.dtype[Any] = np.dtype(f"u{kind.byte_size}")
        self.mantissa = int(ml_dtypes.finfo(self.dtype).nmant)  # type: ignore[no-untyped-call]
        self.max_digits10 = math.ceil(1 + (self.mantissa + 1) * math.log10(2))
        #: Whether nans have payloads.
        self.has_payload = kind in IEEE_TYPES
        #: Bits of the nan that the word ``nan`` denotes.
        with np.errstate(invalid="ignore"):
            value = np.array(float("nan")).astype(self.dtype).view(self.unsigned)
        self.nan = int(value) & ~(1 << (self.bits - 1)) if self.has_payload else int(value)
        other = np.array(self.nan ^ (1 << (self.bits - 1)), self.unsigned).view(self.dtype)
        #: Whether nans have both signs.
        self.has_signed_nan = bool(np.isnan(other.astype(np.float64)))


FLOAT_FORMATS = {kind: FloatFormat(kind) for kind in PrimitiveType if kind.is_floating}
#: Precisions that XLA uses if they are exact enough.
_SHORT_PRECISIONS = {PrimitiveType.F32: (6,), PrimitiveType.F64: (15,)}


def nan_bits(word: str, float_format: FloatFormat) -> int | None:
    """Return the bits of ``nan``, ``-nan`` or ``nan(0x7fc0)``; None for any other word, or a payload
    that does not fit.
    """
    found = _NAN.fullmatch(word)
    if found is None:
        return None
    if not float_format.has_payload:
        if found[2] is not None:
            return None
        return float_format.nan | (
            1 << (float_format.bits - 1) if found[1] and float_format.has_signed_nan else 0
        )
    sign = 1 << (float_format.bits - 1) if found[1] else 0
    if found[2] is None:
        return float_format.nan | sign
    payload = int(found[2], 16)
    if payload >> float_format.mantissa or payload == 0:
        return None
    exponent = ((1 << (float_format.bits - 1 - float_format.mantissa)) - 1) << float_format.mantissa
    return exponent | payload | sign


def is_nan_word(word: str) -> bool:
    return _NAN.fullmatch(word) is not None


def float_texts(flat: NDArray, kind: PrimitiveType) -> list[str]:
    """Return the text of each number, as short as XLA writes it; each reads back to the same bits."""
    float_format = FLOAT_FORMATS[kind]
    bits = np.ascontiguousarray(flat).view(float_format.unsigned)
    with np.errstate(invalid="ignore"):  # widening a signaling nan
        wide = flat.astype(np.float64)
    numbers = wide.tolist()
    texts = [""] * len(numbers)
    left = list(range(len(numbers)))
    for precision in (*_SHORT_PRECISIONS.get(kind, ()), float_format.max_digits10, 17):
        for i in left:
            texts[i] = f"{numbers[i]:.{precision}g}"
        left = _unequal(texts, left, wide, float_format)
        if not left:
            break
    for i in np.flatnonzero((wide == 0) & np.signbit(wide)).tolist():
        texts[i] = "-0.0"  # XLA reads -0 as an integer, which has no sign
    for i in np.flatnonzero(np.isnan(wide)).tolist():
        texts[i] = _nan_word(int(bits[i]), float_format)
    return texts


def _unequal(
    texts: list[str], indices: list[int], wide: NDArray, float_format: FloatFormat
) -> list[int]:
    """Return those of ``indices`` at which the text does not read back to the number (nans aside)."""
    again = np.fromiter((float(texts[i]) for i in indices), np.float64, len(indices))
    with np.errstate(over="ignore", invalid="ignore"):
        again = again.astype(float_format.dtype).astype(np.float64)
    before = wide[indices]
    return [indices[i] for i in np.flatnonzero((again != before) & ~np.isnan(before)).tolist()]


def _nan_word(pattern: int, float_format: FloatFormat) -> str:
    is_negative = pattern >> (float_format.bits - 1) and float_format.has_signed_nan
    sign = "-" if is_negative else ""
    if not float_format.has_payload:
        return f"{sign}nan"
    magnitude = pattern & ((1 << (float_format.bits - 1)) - 1)
    if magnitude == float_format.nan:
        return f"{sign}nan"
    return f"{sign}nan(0x{magnitude & ((1 << float_format.mantissa) - 1):x})"
