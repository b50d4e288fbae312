"""Writing of a kernel's results: a root as views of what is computed, or as a block of a larger array."""

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


@dataclass(frozen=True, slots=True)
class ResultView:
    """Location of a result's elements over an index space: ``view``, moved by ``shifts``."""

    view: StridedView
    shifts: tuple[Shift, ...] = ()


def written_map(result: ResultView) -> AccessMap:
    """Return the access map of the elements that are written."""
    view = result.view
    size = view.element_type.byte_size
    dense = replace(
        view, strides=tuple(s // size for s in view.strides), offset=view.offset // size
    )
    return AccessMap(moving_strides(dense), dense.offset, result.shifts)


@dataclass(frozen=True, slots=True)
class Result:
    """Root as views of ``base``. ``peeled``: these views, nearest to the root first; writing inverts them.

    updated: if only a block is written, the number of the input that holds the rest of the root; otherwise None.
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
        same = array_shape(self.base).dims == dims
        return () if same else (ViewOp(Opcode.RESHAPE, dims),)

    @property
    def keeps_order(self) -> bool:
        return all(op.keeps_order for op, _ in self.peeled)


def result_candidates(
    root: HloInstruction, inputs: Mapping[HloInstruction, int], starts: Starts | None = None
) -> list[Result]:
    """Return the root itself, then as a view of its operand, and so on.

    With ``starts``, to which start scalars of blocks are added, also as a block of an input that is updated.
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
    """Return the number of the input of which ``update`` changes a block, seen through reshapes at most."""
    source = update.operand(0)
    while source not in inputs:
        view = view_op(source)
        if view is None or not view.keeps_order:
            raise NoEmitterError(f"{update.name} changes what is computed here")
        source = source.operand(0)
    return inputs[source]


def matching_result(candidates: Sequence[Result], dims: tuple[int, ...]) -> Result:
    """Return the candidate over ``dims``, else one of equally many elements. Raises NoEmitterError if there is none."""
    for candidate in candidates:
        if array_shape(candidate.base).dims == dims:
            return candidate
    for candidate in candidates:
        if array_shape(candidate.base).num_elements == math.prod(dims):
            return candidate
    raise NoEmitterError(f"{candidates[0].root.name} has other indices than the first result")
