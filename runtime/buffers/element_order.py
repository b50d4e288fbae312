"""Which operations leave elements where they are: what the buffer checker counts as no movement."""

from __future__ import annotations

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.opdef import OPS
from spmd.shape import ArrayShape


def stays_in_place(x: HloInstruction, user: HloInstruction) -> bool:
    """Whether element n of ``user`` needs element n of the array ``x`` alone, in row-major order."""
    shape, seen = x.shape, user.shape
    if not isinstance(shape, ArrayShape) or not isinstance(seen, ArrayShape):
        return False
    if OPS[user.opcode].elementwise or user.opcode is Opcode.BITCAST_CONVERT:
        return shape.dims == seen.dims
    if shape.num_elements != seen.num_elements:
        return False
    if user.opcode in (Opcode.BITCAST, Opcode.RESHAPE, Opcode.SLICE):
        return True
    if user.opcode in (Opcode.BROADCAST, Opcode.TRANSPOSE):
        wide = [d for d, size in zip(_dimensions(user), _sizes(x, user), strict=True) if size != 1]
        return wide == sorted(wide)
    return user.opcode is Opcode.REVERSE and all(seen.dims[d] == 1 for d in _dimensions(user))


def _dimensions(user: HloInstruction) -> tuple[int, ...]:
    return user.attrs_as(DimensionsAttrs).dimensions


def _sizes(x: HloInstruction, user: HloInstruction) -> tuple[int, ...]:
    """Of a broadcast's operand dimensions, or of a transpose's result dimensions: as ``dimensions`` lists them."""
    return x.dims if user.opcode is Opcode.BROADCAST else user.dims
