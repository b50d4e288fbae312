"""Thunk of a single instruction whose operands and results are dense, each in an allocation of its own.

Calibration uses it, because it predicts single instructions for which there is no buffer assignment.
"""

from __future__ import annotations

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.lowering import LOWERINGS, Device, OpArrays
from runtime.program.strides import StridedView
from runtime.program.thunks import Thunk
from spmd.hlo import HloInstruction
from spmd.shape import array_shapes


def thunk_alone(instruction: HloInstruction, device: Device) -> Thunk:
    """Return the thunk of ``instruction``, which must have a lowering and call no computation that runs by itself."""
    lowering = LOWERINGS[instruction.opcode]
    operands = array_shapes(*(x.shape for x in instruction.operands))
    views = [StridedView.dense(shape) for shape in operands]
    for leaf, order in lowering.layouts(instruction, tuple(views)).items():
        views[leaf] = StridedView.dense_in_order(operands[leaf], order)
    results = [StridedView.dense(shape) for shape in array_shapes(instruction.shape)]
    scratch = [StridedView.dense(s) for s in lowering.scratch(instruction, tuple(views))]
    array_views = [_array_view(n, view) for n, view in enumerate((*views, *results, *scratch))]
    first, last = len(views), len(views) + len(results)
    arrays = OpArrays(
        tuple(array_views[:first]), tuple(array_views[first:last]), tuple(array_views[last:])
    )
    return lowering.emit(instruction, arrays, device)


def _array_view(allocation: int, view: StridedView) -> ArrayView:
    return ArrayView(BufferSlice(allocation, 0, view.byte_size), view)
