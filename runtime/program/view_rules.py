"""Views of an array that operations which only rearrange elements give, by opcode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from runtime.program.strides import StridedView
from spmd.hlo import Attrs, Opcode
from spmd.ops.attrs import DimensionsAttrs, SliceAttrs

#: Function of the result's sizes, the attributes and the view of the operand, which returns the view of the result, or
#: None if strides cannot express it, as for the reshape of a transpose.
Rearrange: TypeAlias = Callable[[tuple[int, ...], Attrs, StridedView], StridedView | None]


def dimensions_of(attrs: Attrs) -> tuple[int, ...]:
    """Return the dimensions of a broadcast, transpose or reverse."""
    assert isinstance(attrs, DimensionsAttrs)
    return attrs.dimensions


def _slice(attrs: Attrs, view: StridedView) -> StridedView:
    """Return ``view`` seen through a slice."""
    assert isinstance(attrs, SliceAttrs)
    return view.slice(attrs.starts, attrs.limits, attrs.strides)


REARRANGING: dict[Opcode, Rearrange] = {
    Opcode.BROADCAST: lambda dims, attrs, view: view.broadcast(dims, dimensions_of(attrs)),
    Opcode.RESHAPE: lambda dims, _, view: view.reshape(dims),
    Opcode.REVERSE: lambda _, attrs, view: view.reverse(dimensions_of(attrs)),
    Opcode.SLICE: lambda _, attrs, view: _slice(attrs, view),
    Opcode.TRANSPOSE: lambda _, attrs, view: view.transpose(dimensions_of(attrs)),
}
