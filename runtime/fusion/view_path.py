"""View paths: sequences of view operations from an array to the index space of a kernel.

Inside a fusion every elementwise operation commutes with broadcast, transpose, reshape, slice and reverse. Therefore
these are moved from the results to the operands, where each read has a path of view operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from runtime.program.strides import Shift, StridedView
from spmd.hlo import NO_ATTRS, Attrs, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs, SliceAttrs
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True, slots=True)
class ViewOp:
    """Operation that only rearranges, without its instruction. ``dims``: sizes of its result.

    starts: numbers of the start scalars of a dynamic-slice or dynamic-update-slice, one for each dimension.
    """

    opcode: Opcode
    dims: tuple[int, ...]
    attrs: Attrs = NO_ATTRS
    starts: tuple[int, ...] = ()

    @property
    def keeps_order(self) -> bool:
        """True if element n of the result is element n of the operand, both counted in row-major order."""
        return self.opcode is Opcode.RESHAPE


#: The first op is applied to the array itself, the last gives the index space.
ViewPath: TypeAlias = tuple[ViewOp, ...]

_VIEWS: dict[Opcode, Callable[[ViewOp, StridedView], StridedView | None]] = {
    Opcode.BROADCAST: lambda op, view: view.broadcast(op.dims, _dimensions(op)),
    Opcode.DYNAMIC_SLICE: lambda op, view: _slice_at_zero(op, view),
    Opcode.RESHAPE: lambda op, view: view.reshape(op.dims),
    Opcode.REVERSE: lambda op, view: view.reverse(_dimensions(op)),
    Opcode.SLICE: lambda op, view: _slice(op, view),
    Opcode.TRANSPOSE: lambda op, view: view.transpose(_dimensions(op)),
}
_INVERSES: dict[Opcode, Callable[[ViewOp, StridedView, tuple[int, ...]], StridedView | None]] = {
    Opcode.DYNAMIC_UPDATE_SLICE: lambda _, view, dims: _first(view, dims),
    Opcode.RESHAPE: lambda _, view, dims: view.reshape(dims),
    Opcode.REVERSE: lambda op, view, _: view.reverse(_dimensions(op)),
    Opcode.TRANSPOSE: lambda op, view, _: view.transpose(_inverse(_dimensions(op))),
}


def view_op(instruction: HloInstruction) -> ViewOp | None:
    """Return the view op of an instruction; None if it computes, renames its operand, or is a dynamic-slice."""
    opcode = instruction.opcode
    if opcode is Opcode.BITCAST and _is_reshape(instruction):
        return ViewOp(Opcode.RESHAPE, instruction.dims)
    if opcode is Opcode.RESHAPE:
        return ViewOp(opcode, instruction.dims)
    if opcode is Opcode.DYNAMIC_SLICE:
        return None
    return ViewOp(opcode, instruction.dims, instruction.attrs) if opcode in _VIEWS else None


def _is_reshape(bitcast: HloInstruction) -> bool:
    """Return whether a bitcast is a reshape, ignoring layouts. One into tile padding changes the element count."""
    shape, source = bitcast.array_shape, bitcast.operand(0).array_shape
    return shape.element_type is source.element_type and shape.num_elements == source.num_elements


def is_bijective(op: ViewOp) -> bool:
    """Return whether every element of the operand is exactly one element of the result, and there are no others."""
    return op.opcode in _INVERSES and op.opcode is not Opcode.DYNAMIC_UPDATE_SLICE


@lru_cache(maxsize=1024)
def repeated(dims: tuple[int, ...]) -> ViewOp:
    """Return the broadcast of a scalar to ``dims``."""
    return ViewOp(Opcode.BROADCAST, dims, DimensionsAttrs(()))


def shifts(path: ViewPath, view: StridedView) -> tuple[Shift, ...]:
    """Return the offsets that the dynamic slices of ``path`` add to ``through(path, view)``, which is at index 0."""
    if Opcode.DYNAMIC_SLICE not in [op.opcode for op in path]:
        return ()
    found = []
    for n, op in enumerate(path):
        if op.opcode is not Opcode.DYNAMIC_SLICE:
            continue
        before = through(path[:n], view)
        assert before is not None, "strides express the entire path"
        found += block_shifts(op.starts, op.dims, before)
    return tuple(found)


def block_shifts(starts: tuple[int, ...], sizes: tuple[int, ...], view: StridedView) -> list[Shift]:
    """Return the offset of the block of ``sizes`` of ``view`` at ``starts`` from the block at index 0."""
    return [
        Shift(start, full - size, stride)
        for start, size, full, stride in zip(starts, sizes, view.dims, view.strides, strict=True)
        if size < full and stride
    ]


def through(path: ViewPath, view: StridedView) -> StridedView | None:
    """Return ``view`` seen at the end of ``path``, dynamic slices at index 0; None if strides cannot express it."""
    seen: StridedView | None = view
    for op in path:
        if seen is None:
            return None
        seen = _VIEWS[op.opcode](op, seen)
    return seen


def backwards(op: ViewOp, view: StridedView, dims: tuple[int, ...]) -> StridedView | None:
    """Turn a view of the result of ``op`` into one of its operand, which has sizes ``dims``: the only operand of a
    bijective op, or the block that a dynamic-update-slice writes, as if at index 0.
    """
    return _INVERSES[op.opcode](op, view, dims)


class AccessMap(NamedTuple):
    """Access map: the element of a row-major array that is read at each index. Equal reads have equal maps."""

    strides: tuple[int, ...]
    offset: int
    shifts: tuple[Shift, ...] = ()


def access_map(path: ViewPath, dims: tuple[int, ...]) -> AccessMap | None:
    """Return the access map of ``path`` over a dense array of sizes ``dims``; None if strides cannot express it."""
    dense = _dense(dims)
    view = through(path, dense)
    if view is None:
        return None
    return AccessMap(moving_strides(view), view.offset, shifts(path, dense))


@lru_cache(maxsize=1024)
def _dense(dims: tuple[int, ...]) -> StridedView:
    """Return the view of a dense array of bytes."""
    return StridedView.dense(ArrayShape(PrimitiveType.U8, dims))


def moving_strides(view: StridedView) -> tuple[int, ...]:
    """Return the strides, with 0 for dimensions of one element."""
    return tuple([0 if n == 1 else s for n, s in zip(view.dims, view.strides, strict=True)])


def _dimensions(op: ViewOp) -> tuple[int, ...]:
    assert isinstance(op.attrs, DimensionsAttrs)
    return op.attrs.dimensions


def _slice(op: ViewOp, view: StridedView) -> StridedView:
    assert isinstance(op.attrs, SliceAttrs)
    return view.slice(op.attrs.starts, op.attrs.limits, op.attrs.strides)


def _slice_at_zero(op: ViewOp, view: StridedView) -> StridedView:
    return _first(view, op.dims)


def _first(view: StridedView, dims: tuple[int, ...]) -> StridedView:
    """Return the first block of sizes ``dims``."""
    return view.slice((0,) * len(dims), dims, (1,) * len(dims))


def _inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    inverse = [0] * len(permutation)
    for i, d in enumerate(permutation):
        inverse[d] = i
    return tuple(inverse)
