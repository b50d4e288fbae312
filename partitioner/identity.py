"""The value that changes nothing: what padding and surplus copies hold before a reduction."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from spmd.device import ReductionKind
from spmd.errors import ShardingError
from spmd.shape import PrimitiveType


def identity_value(kind: ReductionKind, element_type: PrimitiveType) -> np.generic:
    """The identity e of ``kind`` (op(e, x) == x for every x), as a scalar of ``element_type``.

    On pred the arithmetic kinds read as logic: add and max are or, multiply and min are and. Float minimum and maximum
    have infinite identities, or the largest finite value where the type has no infinity.
    Raises ShardingError for a kind the type does not have (the order of complex numbers).
    """
    dtype = element_type.numpy
    if kind in (ReductionKind.SUM, ReductionKind.OR, ReductionKind.XOR):
        return _scalar(dtype, 0)
    if kind is ReductionKind.PRODUCT:
        return _scalar(dtype, 1)
    if kind is ReductionKind.AND:
        return _all_ones(element_type)
    if element_type.is_complex:
        raise ShardingError(f"{kind.value} has no identity on {element_type}: complex numbers have no order")
    lowest, highest = _bounds(element_type)
    return highest if kind is ReductionKind.MIN else lowest


def _all_ones(element_type: PrimitiveType) -> np.generic:
    if element_type is PrimitiveType.PRED or element_type.is_unsigned_integer:
        return _bounds(element_type)[1]
    return _scalar(element_type.numpy, -1)


def _bounds(element_type: PrimitiveType) -> tuple[np.generic, np.generic]:
    dtype = element_type.numpy
    if element_type is PrimitiveType.PRED:
        return np.bool_(False), np.bool_(True)
    if element_type.is_integer:
        limits = ml_dtypes.iinfo(dtype)
        return _scalar(dtype, int(limits.min)), _scalar(dtype, int(limits.max))
    infinity = _scalar(dtype, np.inf)
    if np.isinf(infinity.astype(np.float64)):
        return _scalar(dtype, -np.inf), infinity
    finite = ml_dtypes.finfo(dtype)
    return _scalar(dtype, float(finite.min)), _scalar(dtype, float(finite.max))


def _scalar(dtype: np.dtype[Any], value: float) -> np.generic:
    with np.errstate(all="ignore"):
        scalar = np.asarray(value).astype(dtype)[()]
    assert isinstance(scalar, np.generic)
    return scalar
