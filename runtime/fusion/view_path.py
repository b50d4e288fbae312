"""View paths: sequences of view operations from an array to the index space of a kernel.

Inside a fusion every elementwise operation commutes with broadcast, transpose, reshape, slice and reverse. Fusion
therefore moves these operations from the results to the operands, where each read has a path of view operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from runtime.program.strides import Shift, StridedView
from runtime.program.view_rules import REARRANGING, dimensions_of
from spmd.hlo import NO_ATTRS, Attrs, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True, slots=True)
class ViewOp:
    """View operation, which only rearranges elements, detached from its instruction. Its result has sizes ``dims``.

    ``starts`` are the numbers of the start scalars of a dynamic-slice or dynamic-update-slice, one for each dimension.
    """

    opcode: Opcode
    dims: tuple[int, ...]
    attrs: Attrs = NO_ATTRS
    starts: tuple[int, ...] = ()

    @property
    def keeps_order(self) -> bool:
        """Return whether element n of the result is element n of the operand, both counted in row-major order."""
        return self.opcode is Opcode.RESHAPE


#: View operations in the order of application: the first applies to the array, the last has the index space's sizes.
ViewPath: TypeAlias = tuple[ViewOp, ...]

_INVERSES: dict[Opcode, Callable[[ViewOp, StridedView, tuple[int, ...]], StridedView | None]] = {
    Opcode.DYNAMIC_UPDATE_SLICE: lambda _, view, dims: _first(view, dims),
    Opcode.RESHAPE: lambda _, view, dims: view.reshape(dims),
    Opcode.REVERSE: lambda op, view, _: view.reverse(dimensions_of(op.attrs)),
    Opcode.TRANSPOSE: lambda op, view, _: view.transpose(_inverse(dimensions_of(op.attrs))),
}


def view_op(instruction: HloInstruction) -> ViewOp | None:
    """Return the view operation of ``instruction``, or None if it computes, copies, or is a dynamic-slice."""
    opcode = instruction.opcode
    if opcode is Opcode.BITCAST and _is_reshape(instruction):
        return ViewOp(Opcode.RESHAPE, instruction.dims)
    if opcode is Opcode.RESHAPE:
        return ViewOp(opcode, instruction.dims)
    if opcode not in REARRANGING:
        return None
    return ViewOp(opcode, instruction.dims, instruction.attrs)


def _is_reshape(bitcast: HloInstruction) -> bool:
    """Return whether a bitcast is a reshape, apart from layouts. A bitcast that exposes tile padding is none."""
    shape, source = bitcast.array_shape, bitcast.operand(0).array_shape
    return shape.element_type is source.element_type and shape.num_elements == source.num_elements


def is_bijective(op: ViewOp) -> bool:
    """Return whether ``op`` maps the elements of its operand one to one to those of its result."""
    return op.opcode in _INVERSES and op.opcode is not Opcode.DYNAMIC_UPDATE_SLICE


@lru_cache(maxsize=1024)
def repeated(dims: tuple[int, ...]) -> ViewOp:
    """Return the broadcast of a scalar to ``dims``."""
    return ViewOp(Opcode.BROADCAST, dims, DimensionsAttrs(()))


def shifts(path: ViewPath, view: StridedView) -> tuple[Shift, ...]:
    """Return the offsets that the dynamic slices of ``path`` add at run time to the view ``through(path, view)``."""
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
    """Return the offsets, from the block at index 0, of the block of ``view`` of sizes ``sizes`` at ``starts``."""
    return [
        Shift(start, full - size, stride)
        for start, size, full, stride in zip(starts, sizes, view.dims, view.strides, strict=True)
        if size < full and stride
    ]


def through(path: ViewPath, view: StridedView) -> StridedView | None:
    """Return ``view`` seen through ``path``, with dynamic slices at index 0, or None if strides cannot express it."""
    seen: StridedView | None = view
    for op in path:
        if seen is None:
            return None
        if op.opcode is Opcode.DYNAMIC_SLICE:
            seen = _first(seen, op.dims)
        else:
            seen = REARRANGING[op.opcode](op.dims, op.attrs, seen)
    return seen


def backwards(op: ViewOp, view: StridedView, dims: tuple[int, ...]) -> StridedView | None:
    """Convert a view of the result of ``op`` into one of its operand, which has sizes ``dims``.

    The operand is the only one of a bijective operation, or the block that a dynamic-update-slice writes, as if at
    index 0. Returns None if strides cannot express the view.
    """
    return _INVERSES[op.opcode](op, view, dims)


class AccessMap(NamedTuple):
    """Function from an index to the element of a row-major array that is read there. Equal reads have equal maps.

    Strides and offset are in elements; ``shifts`` are run-time offsets.
    """

    strides: tuple[int, ...]
    offset: int
    shifts: tuple[Shift, ...] = ()


def access_map(path: ViewPath, dims: tuple[int, ...]) -> AccessMap | None:
    """Return the access map of ``path`` over a dense array of sizes ``dims``, or None if strides cannot express it."""
    dense = _dense(dims)
    view = through(path, dense)
    if view is None:
        return None
    return AccessMap(moving_strides(view), view.offset, shifts(path, dense))


@lru_cache(maxsize=1024)
def _dense(dims: tuple[int, ...]) -> StridedView:
    """Return the view of a dense array of bytes, whose offsets are element indices."""
    return StridedView.dense(ArrayShape(PrimitiveType.U8, dims))


def moving_strides(view: StridedView) -> tuple[int, ...]:
    """Return the strides of ``view``, with 0 for dimensions of one element, so that equal reads compare equal."""
    return tuple([0 if n == 1 else s for n, s in zip(view.dims, view.strides, strict=True)])


def _first(view: StridedView, dims: tuple[int, ...]) -> StridedView:
    """Return the view of the block of sizes ``dims`` at index 0."""
    return view.slice((0,) * len(dims), dims, (1,) * len(dims))


def _inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inverse of ``permutation``."""
    return tuple(map(permutation.index, range(len(permutation))))
