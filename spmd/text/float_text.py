"""Floating-point numbers in text: enough digits to come back bit for bit, and nans with their payloads."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from spmd.literal import NDArray
from spmd.shape import PrimitiveType

_NAN = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]{1,16})\))?")


class FloatFormat:
    """Bits of a floating-point type: where its nan payload lies and how many digits keep a value apart."""

    __slots__ = ("bits", "digits", "dtype", "has_signed_nan", "mantissa", "nan", "unsigned")

    def __init__(self, kind: PrimitiveType) -> None:
        self.dtype = kind.numpy
        self.bits = kind.byte_size * 8
        self.unsigned: np.dtype[Any] = np.dtype(f"u{kind.byte_size}")
        self.mantissa = _MANTISSA[kind]
        self.digits = math.ceil(1 + (self.mantissa + 1) * math.log10(2))
        #: Bits of the nan that the plain word ``nan`` stands for.
        with np.errstate(invalid="ignore"):
            value = np.array(float("nan")).astype(self.dtype).view(self.unsigned)
        self.nan = int(value) & ~(1 << (self.bits - 1)) if self.has_payload else int(value)
        other = np.array(self.nan ^ (1 << (self.bits - 1)), self.unsigned).view(self.dtype)
        #: Whether nans come with both signs.
        self.has_signed_nan = bool(np.isnan(other.astype(np.float64)))

    @property
    def has_payload(self) -> bool:
        """Whether nans carry payloads (IEEE-like types)."""
        return self.dtype in _IEEE


#: Stored mantissa bits.
_MANTISSA = {
    PrimitiveType.F16: 10,
    PrimitiveType.BF16: 7,
    PrimitiveType.F32: 23,
    PrimitiveType.F64: 52,
    PrimitiveType.F8E5M2: 2,
    PrimitiveType.F8E4M3: 3,
    PrimitiveType.F8E4M3FN: 3,
    PrimitiveType.F8E4M3B11FNUZ: 3,
    PrimitiveType.F8E5M2FNUZ: 2,
    PrimitiveType.F8E4M3FNUZ: 3,
    PrimitiveType.F8E3M4: 4,
    PrimitiveType.F8E8M0FNU: 0,
    PrimitiveType.F4E2M1FN: 1,
    PrimitiveType.F6E2M3FN: 3,
    PrimitiveType.F6E3M2FN: 2,
}
_IEEE = frozenset(
    kind.numpy
    for kind in (
        PrimitiveType.F16,
        PrimitiveType.BF16,
        PrimitiveType.F32,
        PrimitiveType.F64,
        PrimitiveType.F8E5M2,
        PrimitiveType.F8E4M3,
        PrimitiveType.F8E3M4,
    )
)
FLOAT_FORMATS = {kind: FloatFormat(kind) for kind in _MANTISSA}
COMPLEX_PARTS = {PrimitiveType.C64: PrimitiveType.F32, PrimitiveType.C128: PrimitiveType.F64}
#: XLA tries these numbers of digits first.
_SHORT_DIGITS = {PrimitiveType.F32: (6,), PrimitiveType.F64: (15,)}


def nan_bits(word: str, form: FloatFormat) -> int | None:
    """Bits of ``nan``, ``-nan``, ``nan(0x7fc0)``; None for any other word, or a payload that does not fit."""
    found = _NAN.fullmatch(word)
    if found is None:
        return None
    if not form.has_payload:
        if found[2] is not None:
            return None
        return form.nan | (1 << (form.bits - 1) if found[1] and form.has_signed_nan else 0)
    sign = 1 << (form.bits - 1) if found[1] else 0
    if found[2] is None:
        return form.nan | sign
    payload = int(found[2], 16)
    if payload >> form.mantissa or payload == 0:
        return None
    exponent = ((1 << (form.bits - 1 - form.mantissa)) - 1) << form.mantissa
    return exponent | payload | sign


def is_nan_word(word: str) -> bool:
    return _NAN.fullmatch(word) is not None


def float_words(flat: NDArray, kind: PrimitiveType) -> list[str]:
    """One word per number, as short as XLA writes it, each read back to the same bits."""
    form = FLOAT_FORMATS[kind]
    bits = np.ascontiguousarray(flat).view(form.unsigned)
    with np.errstate(invalid="ignore"):  # widening a signaling nan
        wide = flat.astype(np.float64)
    numbers = wide.tolist()
    words = [""] * len(numbers)
    left = list(range(len(numbers)))
    for digits in (*_SHORT_DIGITS.get(kind, ()), form.digits, 17):
        for i in left:
            words[i] = f"{numbers[i]:.{digits}g}"
        left = _unequal(words, left, wide, form)
        if not left:
            break
    for i in np.flatnonzero((wide == 0) & np.signbit(wide)).tolist():
        words[i] = "-0.0"  # XLA reads -0 as a whole number, which has no sign
    for i in np.flatnonzero(np.isnan(wide)).tolist():
        words[i] = _nan_word(int(bits[i]), form)
    return words


def _unequal(words: list[str], indices: list[int], wide: NDArray, form: FloatFormat) -> list[int]:
    """Those of ``indices`` whose word does not read back to the number (nans aside)."""
    again = np.fromiter((float(words[i]) for i in indices), np.float64, len(indices))
    with np.errstate(over="ignore", invalid="ignore"):
        again = again.astype(form.dtype).astype(np.float64)
    before = wide[indices]
    return [indices[i] for i in np.flatnonzero((again != before) & ~np.isnan(before)).tolist()]


def _nan_word(pattern: int, form: FloatFormat) -> str:
    is_negative = pattern >> (form.bits - 1) and form.has_signed_nan
    sign = "-" if is_negative else ""
    if not form.has_payload:
        return f"{sign}nan"
    magnitude = pattern & ((1 << (form.bits - 1)) - 1)
    if magnitude == form.nan:
        return f"{sign}nan"
    return f"{sign}nan(0x{magnitude & ((1 << form.mantissa) - 1):x})"
