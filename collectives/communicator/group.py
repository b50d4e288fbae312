"""Groups of ranks that meet in a collective, and how the values of their members are combined.

Values are combined one member after the other in group order, never own rank first: values that cross ranks
decide loops, and a last bit that differs would end them apart. Floats narrower than 32 bits are summed and
multiplied in f32 and rounded once at the end, as XLA's all-reduce promotion does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from spmd.device import ReductionKind
from spmd.errors import RunError
from spmd.shape import PrimitiveType

Group: TypeAlias = tuple[int, ...]
"""Distinct ranks; their order gives each member its index."""


def describe_group(group: Group) -> str:
    """Return ranks as a text: all of a short group, the ends of a long one."""
    if len(group) <= 16:
        return "{" + ",".join(map(str, group)) + "}"
    return f"{{{group[0]},{group[1]},...,{group[-1]}}} ({len(group)} ranks)"


def require_in(rank: int, group: Group, name: str) -> None:
    """Raise RunError if ``rank`` is no member of the ``group`` that runs the collective ``name``."""
    if rank not in group:
        raise RunError(f"{name}: rank {rank} is not in group {describe_group(group)}")


# ---- the values of their members


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_COMBINE: dict[ReductionKind, Callable[..., Any]] = {
    ReductionKind.SUM: np.add,
    ReductionKind.PRODUCT: np.multiply,
    ReductionKind.MIN: np.minimum,  # like HLO's, a nan operand gives nan
    ReductionKind.MAX: np.maximum,
    ReductionKind.AND: np.bitwise_and,
    ReductionKind.OR: np.bitwise_or,
    ReductionKind.XOR: np.bitwise_xor,
}


#: Reductions of floats; the others are of bits.
_OF_FLOATS = (
    ReductionKind.SUM,
    ReductionKind.PRODUCT,
    ReductionKind.MIN,
    ReductionKind.MAX,
)


def can_reduce(dtype: np.dtype[Any], reduction: ReductionKind) -> bool:
    """Return whether native code combines values with the bits of ``reduce_in_order``.

    It does not for complex products, which NumPy rounds differently from LLVM.
    """
    if dtype.kind == "c":
        return reduction is ReductionKind.SUM
    if PrimitiveType.from_numpy(dtype).is_floating:
        return reduction in _OF_FLOATS
    return True


def accumulator_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which values of ``dtype`` are combined."""
    kind = PrimitiveType.from_numpy(dtype)
    if kind.is_floating and kind.bits < 32:
        return np.dtype(np.float32)
    if kind.is_integer and kind.bits < 8:
        return np.dtype(
            np.int8 if kind.is_signed_integer else np.uint8
        )  # NumPy has no ufuncs for 2 and 4 bits
    return dtype


def reduce_in_order(values: Sequence[Array], reduction: ReductionKind, out: Array) -> None:
    """``out`` = values[0] op values[1] op ...; all of one shape and type. ``out`` may be one of the values."""
    combine = _COMBINE[reduction]
    accumulator = accumulator_type(out.dtype)
    total = values[0].astype(accumulator, copy=True).reshape(-1)
    # NumPy multiplies complex numbers in place with other rounding than into new memory, depending on the
    # length; the bits must not depend on how a communicator cuts the data.
    target = None if accumulator.kind == "c" else total
    with np.errstate(all="ignore"):  # inf and nan are values here, not accidents
        for value in values[1:]:
            total = combine(total, value.astype(accumulator, copy=False).reshape(-1), out=target)
        np.copyto(out, total.astype(out.dtype, copy=False).reshape(out.shape))
