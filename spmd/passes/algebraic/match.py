"""Matchers for identities: constants behind broadcasts, single users, unit dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.literal import NDArray
from spmd.ops.attrs import ConstantAttrs, DimensionsAttrs
from spmd.shape import ArrayShape, PrimitiveType

#: One element of a NumPy array (ml_dtypes' scalars are not np.generic).
Scalar: TypeAlias = Any

#: Largest number of elements of a constant that are read to decide whether all are equal.
_SMALL = 64


def splat(x: HloInstruction) -> Scalar | None:
    """Return the value that all elements of ``x`` have, if it is known: ``x`` is a scalar constant, possibly broadcast
    or reshaped.
    """
    while x.opcode in (Opcode.BROADCAST, Opcode.RESHAPE):
        x = x.operand(0)
    values = constant_array(x)
    if values is None or not 0 < values.size <= _SMALL:
        return None
    flat = values.reshape(-1)
    if flat.size > 1 and values.tobytes() != flat[:1].tobytes() * flat.size:
        return None
    return flat[0]


def constant_starts(
    indices: Sequence[HloInstruction], dims: Sequence[int], taken: Sequence[int]
) -> list[int] | None:
    """Return the start of ``taken`` elements of ``dims``, clamped to fit; None if an index is no constant."""
    if len(indices) != len(dims) or any(index.dims for index in indices):
        return None
    starts: list[int] = []
    for index, size, count in zip(indices, dims, taken, strict=True):
        value = splat(index)
        if count == size:
            starts.append(0)
        elif value is None:
            return None
        else:
            starts.append(min(max(0, int(value)), size - count))
    return starts


def constant_array(x: HloInstruction) -> NDArray | None:
    """Return the elements of a constant, or None if its text elides them."""
    if x.opcode is not Opcode.CONSTANT:
        return None
    literal = x.attrs_as(ConstantAttrs).literal
    return literal.array if literal is not None else None


def is_splat(x: HloInstruction, value: float) -> bool:
    """Return whether all elements equal ``value`` (0 matches -0.0, too)."""
    found = splat(x)
    return found is not None and bool(found == value)


def is_partitioned(b: Builder) -> bool:
    """Return whether what ``b`` builds belongs to a partitioned module."""
    module = b.computation.module
    return module is not None and module.stage >= Stage.PARTITIONED


def element_type(x: HloInstruction) -> PrimitiveType:
    return x.array_shape.element_type


def used_once(x: HloInstruction) -> bool:
    """Return whether ``x`` has exactly one user (which may read it as several operands) and is not the root."""
    return x.num_users == 1 and not x.is_root


def broadcast_dims(x: HloInstruction) -> tuple[int, ...]:
    return x.attrs_as(DimensionsAttrs).dimensions


def non_unit(shape: ArrayShape) -> tuple[int, ...]:
    """Return the sizes other than 1, in order."""
    return tuple(n for n in shape.dims if n != 1)
