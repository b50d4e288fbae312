"""fft along one dimension at a time."""

from __future__ import annotations

import math

from runtime.cpu.kernels.fft.fft_batches import batch_dims, uses_batches
from runtime.cpu.libraries.pocketfft import line_loop
from runtime.emit.reference import emit_reference
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays, Views
from runtime.program.records.fft import FftKernel
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import FftAttrs
from spmd.shape import ArrayShape, PrimitiveType


def _complex_shape(instruction: HloInstruction) -> ArrayShape:
    """Return the shape of the complex side: the operand, or the result of an RFFT."""
    operand = instruction.operand(0).array_shape
    return operand if operand.element_type.is_complex else instruction.array_shape


def _transforms(instruction: HloInstruction) -> list[tuple[str, int, int]]:
    """Return the type, length and number of lines along each dimension. No dimension may be empty."""
    attrs, dims = instruction.attrs_as(FftAttrs), _complex_shape(instruction).dims
    along_others = "IFFT" if attrs.type.startswith("I") else "FFT"
    types = [along_others] * (len(attrs.length) - 1) + [attrs.type]
    return [
        (transform, length, math.prod(dims) // size)
        for transform, length, size in zip(
            types, attrs.length, dims[-len(attrs.length) :], strict=True
        )
    ]


def _kernel(instruction: HloInstruction) -> FftKernel | None:
    """Return the kernel; None if the array is empty or NumPy has no such loop."""
    attrs = instruction.attrs_as(FftAttrs)
    shapes = (instruction.array_shape, instruction.operand(0).array_shape)
    if any(math.prod(shape.dims) == 0 for shape in shapes) or not attrs.length:
        return None
    kind = _complex_shape(instruction).element_type
    if any(line_loop(name, n, kind) is None for name, n, _ in _transforms(instruction)):
        return None
    return FftKernel(attrs.type, len(attrs.length), attrs.length[-1], kind)


def scratch(instruction: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    kernel = _kernel(instruction)
    if kernel is None:
        return ()
    shapes = []
    if kernel.type == "IRFFT" and kernel.rank > 1:
        shapes.append(ArrayShape(kernel.complex_type, _complex_shape(instruction).dims))
    part = PrimitiveType.F32 if kernel.complex_type is PrimitiveType.C64 else PrimitiveType.F64
    batches = [
        batch_dims(transform, length, part.numpy)
        for transform, length, lines in _transforms(instruction)
        if uses_batches(transform, length, lines, part.numpy)
    ]
    if batches:
        shapes.append(ArrayShape(part, max(batches)))
    return tuple(shapes)


def in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    return ((0, 0),) if instruction.attrs_as(FftAttrs).type in ("FFT", "IFFT") else ()


def emit_fft(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    kernel = _kernel(instruction)
    if kernel is None:
        return emit_reference(instruction, arrays, device)
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results, arrays.scratch)


LOWERINGS.add(Opcode.FFT, Lowering(emit_fft, in_place, scratch=scratch))
