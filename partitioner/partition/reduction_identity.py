"""Identity elements of reductions: the contents of padding and surplus copies before a reduction."""

from __future__ import annotations

from typing import cast

import numpy as np

from spmd.device import ReductionKind
from spmd.ops import reduction
from spmd.shape import PrimitiveType


def identity_value(kind: ReductionKind, element_type: PrimitiveType) -> np.generic:
    """Return the identity e of ``kind`` (op(e, x) == x for every x) as a scalar of ``element_type``.

    On pred the arithmetic kinds read as logic: add and max are or, multiply and min are and.
    Minimum and maximum of floats have infinite identities, or the largest finite value where there is no infinity.
    Raises ShapeError for a kind the type does not have (the order of complex numbers).
    """
    value = reduction.identity_value(kind, element_type)
    # Integers are made in their own type: a uint64 cannot come from a float, nor can an int64 hold
    # 2**64-1.
    dtype = element_type.numpy
    plain = np.asarray(value, dtype=dtype if dtype.kind in "iu" else None)
    return cast("np.generic", plain.astype(dtype)[()])
