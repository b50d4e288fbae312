"""fft through NumPy's transforms along one dimension at a time, written in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays
from runtime.kernels.blocks import block_dims, blocks_of, part
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Bytes of the lines that are put aside at one time, at most (if one line is not longer).
MOST_LINE_BYTES = 1 << 16


@dataclass(frozen=True)
class FftKernel(Kernel):
    """results[0] = the transform of operands[0] over its last ``rank`` dimensions; inverse ones divide by their points.

    ``type``: FFT, IFFT, RFFT or IRFFT, whose result has ``length`` elements in the last dimension. The result of an FFT
    or IFFT may be the operand's memory. scratch[0]: lines that are put aside while they are transformed into where they
    were. scratch[1], where a complex operand of several dimensions gives real numbers: as much as the operand.
    """

    type: str
    rank: int
    length: int
    complex_type: PrimitiveType

    def line_elements(self, dims: tuple[int, ...]) -> int:
        """Of scratch[0], for a complex array of ``dims``: a number of lines, an eighth of them all at most."""
        longest = max(dims[len(dims) - self.rank :])
        wanted = min(math.prod(dims) // 8, MOST_LINE_BYTES // self.complex_type.byte_size)
        return max(wanted, longest)


_Calls = list[Callable[[], object]]


@NUMPY_KERNELS.binds(FftKernel)
def bind_fft(kernel: FftKernel, arrays: KernelArrays) -> Action:
    (source,), (out,) = arrays.operands, arrays.results
    lines = arrays.scratch[0]
    last = source.ndim - 1
    others = range(last - 1, source.ndim - kernel.rank - 1, -1)
    forward, inverse = np.fft.fft, np.fft.ifft
    calls: _Calls
    if kernel.type == "RFFT":
        calls = [partial(np.fft.rfft, source, kernel.length, last, out=out)]
        for axis in others:
            calls += _within(out, out, axis, forward, lines)
    elif kernel.type == "IRFFT":
        calls, partly = [], source
        for axis in others:
            calls += _within(partly, arrays.scratch[1], axis, inverse, lines)
            partly = arrays.scratch[1]
        calls.append(partial(np.fft.irfft, partly, kernel.length, last, out=out))
    else:
        transform = forward if kernel.type == "FFT" else inverse
        calls, partly = [], source
        for axis in (last, *others):
            calls += _within(partly, out, axis, transform, lines)
            partly = out

    def run() -> None:
        for call in calls:
            call()

    return run


def _within(
    source: NDArray, target: NDArray, axis: int, transform: Callable[..., Any], lines: NDArray
) -> _Calls:
    """target = the transform of source along ``axis``; the two may be the same memory."""
    if not np.may_share_memory(source, target):
        return [partial(transform, source, None, axis, out=target)]
    source, target = np.moveaxis(source, axis, -1), np.moveaxis(target, axis, -1)
    *others, size = source.shape
    calls: _Calls = []
    for block in blocks_of(tuple(others), block_dims(tuple(others), lines.size // size)):
        put_aside = part(source, block)
        line = lines[: put_aside.size].reshape(put_aside.shape)
        calls.append(partial(np.copyto, line, put_aside))
        calls.append(partial(transform, line, None, -1, out=part(target, block)))
    return calls
