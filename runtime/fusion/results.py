"""Writing of a kernel's results: a root is written through inverted views, or as a block of a larger array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runtime.fusion.element_graph import Starts
from runtime.fusion.element_operations import array_shape
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import (
    AccessMap,
    ViewOp,
    ViewPath,
    backwards,
    block_shifts,
    is_bijective,
    moving_strides,
    view_op,
)
from runtime.program.strides import Shift, StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape


@dataclass(frozen=True, slots=True)
class ResultView:
    """Location of a result's elements over an index space: ``view``, offset at run time by ``shifts``."""

    view: StridedView
    shifts: tuple[Shift, ...] = ()


def written_map(result: ResultView) -> AccessMap:
    """Return the access map, in elements, of the elements written through ``result``."""
    view = result.view
    size = view.element_type.byte_size
    dense = replace(
        view, strides=tuple(s // size for s in view.strides), offset=view.offset // size
    )
    return AccessMap(moving_strides(dense), dense.offset, result.shifts)


@dataclass(frozen=True, slots=True)
class Result:
    """A root as a sequence of views of ``base``, the value that the kernel computes.

    ``peeled`` lists these views with the sizes of their operands, the nearest to the root first; the kernel inverts
    them when it writes. If only a block of the root is written, ``updated`` is the number of the input that holds the
    rest.
    """

    root: HloInstruction
    base: HloInstruction
    peeled: tuple[tuple[ViewOp, tuple[int, ...]], ...] = ()
    updated: int | None = None

    def view(self, dims: tuple[int, ...]) -> ResultView | None:
        """Return the view of the root's memory over ``dims``, or None if strides cannot express it."""
        view: StridedView | None = StridedView.dense(array_shape(self.root))
        shifts: list[Shift] = []
        for op, operand_dims in self.peeled:
            if view is None:
                return None
            if op.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
                shifts += block_shifts(op.starts, operand_dims, view)
            view = backwards(op, view, operand_dims)
        if view is not None and view.dims != dims:
            view = view.reshape(dims)
        return None if view is None else ResultView(view, tuple(shifts))

    def path(self, dims: tuple[int, ...]) -> ViewPath:
        """Return the path from the base to the index space ``dims``."""
        same = array_shape(self.base).dims == dims
        return () if same else (ViewOp(Opcode.RESHAPE, dims),)

    @property
    def keeps_order(self) -> bool:
        """Return whether element n of the base is element n of the root, for all n."""
        return all(op.keeps_order for op, _ in self.peeled)


def same_size(one: ArrayShape, other: ArrayShape) -> bool:
    """Return whether two arrays have equally many elements and equally many bytes."""
    return (one.num_elements, one.byte_size) == (other.num_elements, other.byte_size)


def result_candidates(
    root: HloInstruction, inputs: Mapping[HloInstruction, int], starts: Starts | None = None
) -> list[Result]:
    """Return the ways to write ``root``, with the fewest views first.

    It is written as itself, as a view of its operand, as two views of that one's operand, and so on. If ``starts`` is
    given, a dynamic-update-slice may be one of the views: its block is then written into an input, and its start
    scalars are added to ``starts``.
    """
    result = Result(root, root)
    candidates = [result]
    while result.base not in inputs:
        base = result.base
        if base.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
            if starts is None or result.updated is not None or not result.keeps_order:
                break
            numbers = starts.numbers(base, base.operands[2:])
            op, operand = ViewOp(base.opcode, base.dims, starts=numbers), base.operand(1)
            updated: int | None = _updated_input(base, inputs)
        else:
            view = view_op(base)
            if view is None or not is_bijective(view):
                break
            op, operand, updated = view, base.operand(0), result.updated
        peeled = (*result.peeled, (op, array_shape(operand).dims))
        result = Result(root, operand, peeled, updated)
        candidates.append(result)
    return candidates


def _updated_input(update: HloInstruction, inputs: Mapping[HloInstruction, int]) -> int:
    """Return the number of the input, possibly reshaped, a block of which ``update`` changes.

    Raises NoEmitterError if the updated array is computed in the kernel.
    """
    source = update.operand(0)
    while source not in inputs:
        view = view_op(source)
        if view is None or not view.keeps_order:
            raise NoEmitterError(f"{update.name} changes what is computed here")
        source = source.operand(0)
    return inputs[source]


def matching_result(candidates: Sequence[Result], dims: tuple[int, ...]) -> Result:
    """Return the candidate whose base has sizes ``dims``, or else one with equally many elements.

    Raises NoEmitterError if there is neither.
    """
    for candidate in candidates:
        if array_shape(candidate.base).dims == dims:
            return candidate
    for candidate in candidates:
        if array_shape(candidate.base).num_elements == math.prod(dims):
            return candidate
    raise NoEmitterError(f"{candidates[0].root.name} has other indices than the first result")
