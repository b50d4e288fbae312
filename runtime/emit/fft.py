"""Lowering of fft to a kernel that transforms one dimension after another."""

from __future__ import annotations

import math

from runtime.cpu.kernels.fft.fft_batches import batch_dims, uses_batches
from runtime.cpu.libraries.pocketfft import line_loop
from runtime.emit.reference import emit_with
from runtime.lowering import LOWERINGS, Lowering, Views
from runtime.program.records.fft import FftKernel
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import FftAttrs
from spmd.shape import ArrayShape, PrimitiveType


def _complex_shape(instruction: HloInstruction) -> ArrayShape:
    """Return the shape of the operand if that is complex, else (RFFT) the shape of the result."""
    operand = instruction.operand(0).array_shape
    return operand if operand.element_type.is_complex else instruction.array_shape


def _transforms(instruction: HloInstruction) -> list[tuple[str, int, int]]:
    """Return (type, number of points, number of lines) of the transform along each dimension.

    No dimension may be empty.
    """
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
    """Return the kernel, or None if an array is empty or NumPy's FFT library (pocketfft) has no loop for it."""
    attrs = instruction.attrs_as(FftAttrs)
    shapes = (instruction.array_shape, instruction.operand(0).array_shape)
    if any(math.prod(shape.dims) == 0 for shape in shapes) or not attrs.length:
        return None
    kind = _complex_shape(instruction).element_type
    if any(line_loop(name, n, kind) is None for name, n, _ in _transforms(instruction)):
        return None
    return FftKernel(attrs.type, len(attrs.length), attrs.length[-1], kind)


def scratch(instruction: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    """Return the shapes of the scratch arrays of the kernel (see ``FftKernel``)."""
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
    """Return ((0, 0),) for transforms from complex to complex numbers, which can run in place, else no pairs."""
    return ((0, 0),) if instruction.attrs_as(FftAttrs).type in ("FFT", "IFFT") else ()


LOWERINGS.add(Opcode.FFT, Lowering(emit_with(_kernel), in_place, scratch=scratch))
