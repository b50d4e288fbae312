"""FFT along one dimension at a time: batches of lines by native code, other lines by the pocketfft of NumPy."""

from __future__ import annotations

import numpy as np

from runtime.cpu.kernels.fft.fft_batches import batched_lines, line_dims, uses_batches
from runtime.cpu.kernels.fft.ufunc_call_ir import (
    FUNCTION,
    LINES_WORD,
    RESULTS_WORD,
    LineLoopRecord,
    line_loop_code,
)
from runtime.cpu.kernels.native_call import NativeAction, in_order, native_call, repeated
from runtime.cpu.libraries.pocketfft import line_loop
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.fft import FftKernel
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


@CPU_KERNELS.binds(FftKernel)
def bind_fft(kernel: FftKernel, arrays: KernelArrays) -> Action:
    """Bind the transforms along each dimension, one after the other.

    An RFFT begins with the last dimension, and an IRFFT ends with it, since lines are real on one side only.
    """
    (source,), (out,) = arrays.operands, arrays.results
    last = source.ndim - 1
    others = range(last - 1, source.ndim - kernel.rank - 1, -1)
    if kernel.type == "RFFT":
        along_others = [_lines(arrays, "FFT", out, out, axis) for axis in others]
        return in_order(_lines(arrays, "RFFT", source, out, last), *along_others)
    if kernel.type == "IRFFT":
        actions, partly = [], source
        for axis in others:
            actions.append(_lines(arrays, "IFFT", partly, arrays.scratch[0], axis))
            partly = arrays.scratch[0]
        return in_order(*actions, _lines(arrays, "IRFFT", partly, out, last))
    actions, partly = [], source
    for axis in (last, *others):
        actions.append(_lines(arrays, kernel.type, partly, out, axis))
        partly = out
    return in_order(*actions)


def _lines(
    arrays: KernelArrays, transform: str, source: NDArray, target: NDArray, axis: int
) -> NativeAction:
    """Bind target = transform of source along ``axis``. Both may be the same memory, and neither is empty."""
    length = source.shape[axis] if transform == "RFFT" else target.shape[axis]
    lines = source.size // source.shape[axis]
    if uses_batches(transform, length, lines, source.real.dtype):
        return batched_lines(transform, source, target, axis, arrays.scratch[-1])
    return _single_lines(transform, source, target, axis)


def _single_lines(transform: str, source: NDArray, target: NDArray, axis: int) -> NativeAction:
    """Bind the transform of one line after the other by NumPy's compiled loop."""
    kind = PrimitiveType.from_numpy(source.dtype)
    length = source.shape[axis] if transform == "RFFT" else target.shape[axis]
    loop = line_loop(transform, length, kind)
    assert loop is not None, "it was asked for before"
    factor = np.array(1 / length if transform.startswith("I") else 1, source.real.dtype)
    *outer, (lines, step, target_step) = line_dims(source, target, axis)
    # Lines in place must have equal strides, which those of a dimension of one element need not be.
    step = step if lines > 1 else target_step
    along = (source if source.shape[axis] > 1 else target).strides[axis]
    record = LineLoopRecord(
        loop.function,
        loop.data,
        *(source.ctypes.data, factor.ctypes.data, target.ctypes.data),
        *(lines, source.shape[axis], target.shape[axis]),
        *(step, 0, target_step, along, target.strides[axis]),
    ).to_array()
    alive = (source, target, factor)
    calls = native_call(line_loop_code(), FUNCTION, record, alive).calls
    record_at = record.ctypes.data
    for count, *steps in reversed(outer):
        fields = (record_at + 8 * LINES_WORD, record_at + 8 * RESULTS_WORD)
        calls = repeated(count, calls, [*zip(fields, steps, strict=True)])
    return NativeAction(calls)
