"""Lowering of dynamic-slice, dynamic-update-slice, pad and concatenate."""

from __future__ import annotations

from runtime.emit.reference import emit_with
from runtime.lowering import LOWERINGS, Lowering
from runtime.program.records.copy import (
    ConcatenateKernel,
    DynamicSliceKernel,
    DynamicUpdateSliceKernel,
    PadKernel,
)
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, DynamicSliceAttrs, PadAttrs


def dynamic_slice_kernel(instruction: HloInstruction) -> DynamicSliceKernel:
    """Return the kernel of a dynamic-slice."""
    return DynamicSliceKernel(instruction.attrs_as(DynamicSliceAttrs).sizes)


def concatenate_kernel(instruction: HloInstruction) -> ConcatenateKernel:
    """Return the kernel of a concatenate."""
    (dimension,) = instruction.attrs_as(DimensionsAttrs).dimensions
    return ConcatenateKernel(dimension)


def pad_kernel(instruction: HloInstruction) -> PadKernel:
    """Return the kernel of a pad. Elements that negative padding removes are not copied."""
    attrs = instruction.attrs_as(PadAttrs)
    sizes, result = instruction.operand(0).dims, instruction.dims
    source, target = [], []
    for size, total, low, interior in zip(sizes, result, attrs.low, attrs.interior, strict=True):
        step = interior + 1
        first = (
            -(low // step) if low < 0 else 0
        )  # the first element that does not fall before the result
        last = min(size, (total - 1 - low) // step + 1)
        last = max(last, first)
        source.append(slice(first, last))
        begin = low + first * step
        target.append(
            slice(begin, begin + (last - first - 1) * step + 1 if last > first else begin, step)
        )
    return PadKernel(tuple(source), tuple(target))


LOWERINGS.add(Opcode.DYNAMIC_SLICE, Lowering(emit_with(dynamic_slice_kernel)))
LOWERINGS.add(
    Opcode.DYNAMIC_UPDATE_SLICE,
    Lowering(emit_with(lambda _: DynamicUpdateSliceKernel()), lambda _: ((0, 0),)),
)
LOWERINGS.add(Opcode.CONCATENATE, Lowering(emit_with(concatenate_kernel)))
LOWERINGS.add(Opcode.PAD, Lowering(emit_with(pad_kernel)))
