"""Expansions of library calls, by target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from spmd.builder import Builder
from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.ops.checks import result_elements
from spmd.ops.custom_call import custom_call_target
from spmd.registry import Registry
from spmd.shape import ArrayShape

Values: TypeAlias = tuple[HloInstruction, ...]
#: (call, operands, builder) -> its results except workspaces, which come last.
Expansion: TypeAlias = Callable[[HloInstruction, Sequence[HloInstruction], Builder], Values]

LIBRARY_CALLS: Registry[str, Expansion] = Registry("library call")


def expansion_of(call: HloInstruction) -> Expansion | None:
    """Return the expansion of a custom call; None if its target is not that of a known library call."""
    return LIBRARY_CALLS.get(custom_call_target(call))


def expanded(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return the results of ``call`` on ``operands``, without workspaces.

    Raises UnsupportedError if the call uses unknown features of its target, or has other results.
    """
    expansion = expansion_of(call)
    assert expansion is not None
    return require_results(call, expansion(call, operands, b))


def require_results(call: HloInstruction, values: Values) -> Values:
    """Return ``values``. Raises UnsupportedError if the first results of ``call`` have other shapes."""
    shapes = result_elements(call.shape)
    if len(values) > len(shapes) or any(
        not isinstance(shape, ArrayShape)
        or value.dims != shape.dims
        or value.array_shape.element_type is not shape.element_type
        for value, shape in zip(values, shapes, strict=False)
    ):
        found = ", ".join(str(value.array_shape.without_layout()) for value in values)
        raise UnsupportedError(f"{call!r}: the call computes ({found})")
    return values


def require_operands(call: HloInstruction, operands: Sequence[HloInstruction], count: int) -> None:
    if len(operands) != count:
        raise UnsupportedError(f"{call!r}: {count} operands are expected, found {len(operands)}")
