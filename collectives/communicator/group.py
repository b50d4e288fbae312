"""Groups of ranks that take part in a collective, and the reduction of their members' values.

Values are reduced in group order, one member after the other; no rank begins with its own value. Reduced values may
decide how often a loop runs, and ranks whose results differ in the last bit would run different numbers of trips.
Floats narrower than 32 bits are summed and multiplied in f32 and rounded once at the end, as XLA's all-reduce promotion
does.
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
    """Return ``group`` as text for messages: up to 16 ranks entirely, else the first two, the last and the count."""
    if len(group) <= 16:
        return "{" + ",".join(map(str, group)) + "}"
    return f"{{{group[0]},{group[1]},...,{group[-1]}}} ({len(group)} ranks)"


def require_in(rank: int, group: Group, name: str) -> None:
    """Raise RunError if ``rank`` is not a member of ``group``. ``name`` is the collective that the error names."""
    if rank not in group:
        raise RunError(f"{name}: rank {rank} is not in group {describe_group(group)}")


# ---- reduction of the members' values


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_COMBINE: dict[ReductionKind, Callable[..., Any]] = {
    ReductionKind.SUM: np.add,
    ReductionKind.PRODUCT: np.multiply,
    ReductionKind.MIN: np.minimum,  # a nan operand gives nan, as in HLO
    ReductionKind.MAX: np.maximum,
    ReductionKind.AND: np.bitwise_and,
    ReductionKind.OR: np.bitwise_or,
    ReductionKind.XOR: np.bitwise_xor,
}


#: Reductions that HLO defines for floats. AND, OR and XOR combine the bits of integers and predicates.
_OF_FLOATS = (
    ReductionKind.SUM,
    ReductionKind.PRODUCT,
    ReductionKind.MIN,
    ReductionKind.MAX,
)


def can_reduce(dtype: np.dtype[Any], reduction: ReductionKind) -> bool:
    """Return whether native code reduces values of ``dtype`` with the same bits as ``reduce_in_order``.

    The bits differ for complex products, which NumPy rounds differently from LLVM. Floats have no bitwise reductions.
    """
    if dtype.kind == "c":
        return reduction is ReductionKind.SUM
    if PrimitiveType.from_numpy(dtype).is_floating:
        return reduction in _OF_FLOATS
    return True


def accumulator_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which values of ``dtype`` are reduced.

    It is f32 for narrower floats, an 8-bit integer for narrower integers, and otherwise ``dtype``.
    """
    kind = PrimitiveType.from_numpy(dtype)
    if kind.is_floating and kind.bits < 32:
        return np.dtype(np.float32)
    if kind.is_integer and kind.bits < 8:
        return np.dtype(
            np.int8 if kind.is_signed_integer else np.uint8
        )  # NumPy has no ufuncs for 2 and 4 bits
    return dtype


def reduce_in_order(values: Sequence[Array], reduction: ReductionKind, out: Array) -> None:
    """Write values[0] op values[1] op ... to ``out``, evaluated from left to right in the accumulator type of ``out``.

    All values have the size of ``out``; they have the type of ``out`` or its accumulator type (``accumulator_type``).
    The total is rounded once, when it is stored. ``out`` may be the memory of one of the values.
    """
    combine = _COMBINE[reduction]
    accumulator = accumulator_type(out.dtype)
    total = values[0].astype(accumulator, copy=True).reshape(-1)
    # For some lengths NumPy rounds a complex product in place differently from one in new memory. The bits must not
    # depend on how a communicator splits the data, so complex totals always go to new memory.
    target = None if accumulator.kind == "c" else total
    with np.errstate(all="ignore"):  # inf and nan are valid results of a reduction
        for value in values[1:]:
            total = combine(total, value.astype(accumulator, copy=False).reshape(-1), out=target)
        np.copyto(out, total.astype(out.dtype, copy=False).reshape(out.shape))
