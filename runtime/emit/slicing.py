"""Lowering of dynamic-slice, dynamic-update-slice, pad and concatenate."""

from __future__ import annotations

from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays
from runtime.program.kernel import Kernel
from runtime.program.records.copy import (
    ConcatenateKernel,
    DynamicSliceKernel,
    DynamicUpdateSliceKernel,
    PadKernel,
)
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, DynamicSliceAttrs, PadAttrs


def _thunk(instruction: HloInstruction, kernel: Kernel, arrays: OpArrays) -> Thunk:
    """Return the thunk of ``kernel``, which computes ``instruction``."""
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results)


def emit_dynamic_slice(instruction: HloInstruction, arrays: OpArrays, _: Device) -> Thunk:
    """Return the thunk of a dynamic-slice."""
    sizes = instruction.attrs_as(DynamicSliceAttrs).sizes
    return _thunk(instruction, DynamicSliceKernel(sizes), arrays)


def emit_dynamic_update_slice(instruction: HloInstruction, arrays: OpArrays, _: Device) -> Thunk:
    """Return the thunk of a dynamic-update-slice."""
    return _thunk(instruction, DynamicUpdateSliceKernel(), arrays)


def emit_concatenate(instruction: HloInstruction, arrays: OpArrays, _: Device) -> Thunk:
    """Return the thunk of a concatenate."""
    (dimension,) = instruction.attrs_as(DimensionsAttrs).dimensions
    return _thunk(instruction, ConcatenateKernel(dimension), arrays)


def emit_pad(instruction: HloInstruction, arrays: OpArrays, _: Device) -> Thunk:
    """Return the thunk of a pad. Elements that negative padding removes are not copied."""
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
    kernel = PadKernel(tuple(source), tuple(target))
    return _thunk(instruction, kernel, arrays)


LOWERINGS.add(Opcode.DYNAMIC_SLICE, Lowering(emit_dynamic_slice))
LOWERINGS.add(Opcode.DYNAMIC_UPDATE_SLICE, Lowering(emit_dynamic_update_slice, lambda _: ((0, 0),)))
LOWERINGS.add(Opcode.CONCATENATE, Lowering(emit_concatenate))
LOWERINGS.add(Opcode.PAD, Lowering(emit_pad))
