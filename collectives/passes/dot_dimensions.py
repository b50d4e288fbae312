"""Roles of the dimensions of a product's operands."""

from __future__ import annotations

from enum import Enum

from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.ops.dot import free_dims


class Role(Enum):
    BATCH = "batch"
    CONTRACTING = "contracting"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class DotDimension:
    """One dimension of both operands and the result; None for an array without it."""

    role: Role
    operands: tuple[int | None, int | None]
    result: int | None


def dot_dimensions(dot: HloInstruction) -> tuple[DotDimension, ...]:
    """Return the result's dimensions in their order, then the contracting ones."""
    attrs = dot.attrs_as(DotAttrs)
    lhs, rhs = dot.operands
    found = [
        DotDimension(Role.BATCH, pair, n)
        for n, pair in enumerate(zip(attrs.lhs_batch, attrs.rhs_batch, strict=True))
    ]
    for d in free_dims(len(lhs.dims), attrs.lhs_batch, attrs.lhs_contracting):
        found.append(DotDimension(Role.FREE, (d, None), len(found)))
    for d in free_dims(len(rhs.dims), attrs.rhs_batch, attrs.rhs_contracting):
        found.append(DotDimension(Role.FREE, (None, d), len(found)))
    summed = zip(attrs.lhs_contracting, attrs.rhs_contracting, strict=True)
    return (*found, *(DotDimension(Role.CONTRACTING, pair, None) for pair in summed))
