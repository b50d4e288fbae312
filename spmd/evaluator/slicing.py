"""Evaluation of slice, dynamic-slice, dynamic-update-slice, pad, concatenate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, array_of, arrays_of, part
from spmd.evaluator.windows import dilate_and_pad
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, DynamicSliceAttrs, PadAttrs, SliceAttrs
from spmd.ops.window import Window, WindowDimension


@evaluates(Opcode.SLICE)
def evaluate_slice(instruction: HloInstruction, operands: Operands) -> Value:
    attrs = instruction.attrs_as(SliceAttrs)
    bounds = zip(attrs.starts, attrs.limits, attrs.strides, strict=True)
    return part(array_of(operands[0]), [slice(*b) for b in bounds])


def _clamped_starts(
    starts: Sequence[NDArray], dims: Sequence[int], sizes: Sequence[int]
) -> list[int]:
    """Return the start per dimension, moved so that the slice lies inside; starts are scalars or (old form)
    one vector.
    """
    if len(starts) == 1 and starts[0].ndim == 1:
        starts = list(starts[0])
    return [
        min(max(int(start), 0), dim - size)
        for start, dim, size in zip(starts, dims, sizes, strict=True)
    ]


@evaluates(Opcode.DYNAMIC_SLICE)
def evaluate_dynamic_slice(instruction: HloInstruction, operands: Operands) -> Value:
    x, *starts = arrays_of(operands)
    sizes = instruction.attrs_as(DynamicSliceAttrs).sizes
    begin = _clamped_starts(starts, x.shape, sizes)
    return part(x, [slice(b, b + n) for b, n in zip(begin, sizes, strict=True)])


@evaluates(Opcode.DYNAMIC_UPDATE_SLICE)
def evaluate_dynamic_update_slice(_: HloInstruction, operands: Operands) -> Value:
    x, update, *starts = arrays_of(operands)
    begin = _clamped_starts(starts, x.shape, update.shape)
    result = np.array(x)
    result[tuple(slice(b, b + n) for b, n in zip(begin, update.shape, strict=True))] = update
    return result


@evaluates(Opcode.PAD)
def evaluate_pad(instruction: HloInstruction, operands: Operands) -> Value:
    """Pad. Padding may be negative; interior padding is inserted between elements before edges are cut."""
    attrs = instruction.attrs_as(PadAttrs)
    x, fill = arrays_of(operands)
    frame = Window(
        tuple(
            WindowDimension(padding_low=low, padding_high=high, base_dilation=interior + 1)
            for low, high, interior in zip(attrs.low, attrs.high, attrs.interior, strict=True)
        )
    )
    return dilate_and_pad(x, frame, fill)


@evaluates(Opcode.CONCATENATE)
def evaluate_concatenate(instruction: HloInstruction, operands: Operands) -> Value:
    (dimension,) = instruction.attrs_as(DimensionsAttrs).dimensions
    return np.concatenate(arrays_of(operands), axis=dimension)
