"""Arithmetic of element types: the NumPy types in which they compute, and the conversion of results.

Floating types narrower than f32 compute in f32 and are rounded once per operation; f32 stays f32. Sub-byte integers
compute in one byte and wrap to their width. NumPy's warnings are off during evaluation (``quiet``): infinities, NaN and
wrap-around are results here, not accidents.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from spmd.evaluator.value import NDArray
from spmd.shape import PrimitiveType

DType: TypeAlias = np.dtype[Any]

_WORKING: dict[DType, DType] = {
    kind.numpy: np.dtype(np.float32)
    for kind in PrimitiveType
    if kind.is_floating and kind not in (PrimitiveType.F32, PrimitiveType.F64)
}
_SUB_BYTE: dict[DType, PrimitiveType] = {
    kind.numpy: kind for kind in PrimitiveType if kind.is_integer and kind.bits < 8
}
_WORKING.update(
    {d: np.dtype(np.int8 if k.is_signed_integer else np.uint8) for d, k in _SUB_BYTE.items()}
)

_NO_MINUS_ZERO = (
    PrimitiveType.F8E4M3B11FNUZ,
    PrimitiveType.F8E4M3FNUZ,
    PrimitiveType.F8E5M2FNUZ,
)


def quiet() -> np.errstate:
    """Return the NumPy context in which evaluation runs."""
    return np.errstate(all="ignore")


def working_type(dtype: DType) -> DType:
    """Return the NumPy type in which elements of ``dtype`` compute."""
    return _WORKING.get(dtype, dtype)


def widen(x: NDArray) -> NDArray:
    """Return ``x`` in its working type (``x`` itself if that is its own type)."""
    wide = _WORKING.get(x.dtype)
    return x if wide is None else x.astype(wide)


def narrow(x: NDArray | np.generic, dtype: DType) -> NDArray:
    """Round (or wrap) ``x``, computed in the working type, to ``dtype``."""
    x = np.asarray(x)
    if x.dtype == dtype:
        return x
    kind = _SUB_BYTE.get(dtype)
    return x.astype(dtype) if kind is None else _wrap(x, kind)


def wrap_integers(x: NDArray, kind: PrimitiveType) -> NDArray:
    """Return integers modulo 2**bits of the integer type ``kind`` (two's complement)."""
    if kind.bits >= 8:
        return x.astype(kind.numpy)
    return _wrap(x, kind)


def _wrap(x: NDArray, kind: PrimitiveType) -> NDArray:
    bits = kind.bits
    low = np.asarray(x.astype(np.uint8) & np.uint8((1 << bits) - 1))
    if kind.is_signed_integer:
        signed = low.astype(np.int8)
        low = np.where(signed >= 1 << (bits - 1), signed - np.int8(1 << bits), signed)
    return low.astype(kind.numpy)


def unsigned_view(x: NDArray) -> NDArray:
    """Return the bits of ``x`` as unsigned integers of the same width in memory."""
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)


def total_order_keys(x: NDArray) -> NDArray:
    """Return integers that order as ``x`` does: -nan < -inf < ... < -0 < +0 < ... < inf < nan.

    The one NaN of the types without -0 (fnuz) has the sign bit: it is the least. f8e8m0fnu has no sign.
    """
    if x.dtype == np.bool_:
        return x.view(np.uint8)
    if x.dtype.kind in "iu" or x.dtype in _SUB_BYTE:
        return widen(x)
    kind = PrimitiveType.from_numpy(x.dtype)
    if kind is PrimitiveType.F8E8M0FNU:
        return unsigned_view(x)
    raw = unsigned_view(x).view(f"i{x.dtype.itemsize}")
    if kind.bits < 8:  # the sign bit is not the byte's top bit
        unused = raw.dtype.type(8 - kind.bits)
        raw = (raw << unused) >> unused
    keys = np.where(raw < 0, raw ^ raw.dtype.type(np.iinfo(raw.dtype).max), raw)
    if kind not in _NO_MINUS_ZERO:
        return keys
    return np.where(np.isnan(x), np.iinfo(raw.dtype).min, keys + (raw < 0).astype(raw.dtype))
