"""Expansions of library calls, by target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from spmd.builder import Builder
from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.ops.attrs import CustomCallAttrs
from spmd.registry import Registry
from spmd.shape import ArrayShape, Shape, TupleShape

Values: TypeAlias = tuple[HloInstruction, ...]
#: (call, operands, builder) -> its results except workspaces, which come last.
Expansion: TypeAlias = Callable[[HloInstruction, Sequence[HloInstruction], Builder], Values]

LIBRARY_CALLS: Registry[str, Expansion] = Registry("library call")


def expansion_of(call: HloInstruction) -> Expansion | None:
    """Return the expansion of a custom call; None if its target is not that of a known library call."""
    attrs = call.attrs
    return LIBRARY_CALLS.get(attrs.target) if isinstance(attrs, CustomCallAttrs) else None


def expanded(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return the results of ``call`` on ``operands``, without workspaces.

    Raises UnsupportedError if the call uses unknown features of its target, or has other results.
    """
    expansion = expansion_of(call)
    assert expansion is not None
    values = expansion(call, operands, b)
    shapes = result_shapes(call)
    if len(values) > len(shapes) or any(
        not isinstance(shape, ArrayShape)
        or value.dims != shape.dims
        or value.array_shape.element_type is not shape.element_type
        for value, shape in zip(values, shapes, strict=False)
    ):
        found = ", ".join(str(value.array_shape.without_layout()) for value in values)
        raise UnsupportedError(f"{call!r}: the call computes ({found})")
    return values


def result_shapes(call: HloInstruction) -> tuple[Shape, ...]:
    """Return the shapes of the results; that of the call itself if it is no tuple."""
    return call.shape.elements if isinstance(call.shape, TupleShape) else (call.shape,)


def require_operands(call: HloInstruction, operands: Sequence[HloInstruction], count: int) -> None:
    if len(operands) != count:
        raise UnsupportedError(f"{call!r}: {count} operands are expected, found {len(operands)}")
