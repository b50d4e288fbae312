"""Fourier transforms by cuFFT, through CuPy's fft functions."""

from __future__ import annotations

import cupy

from runtime.gpu.captures import CaptureLock
from runtime.gpu.cuda.copies import cupy_array
from runtime.gpu.driver import Enqueue, GpuStream
from runtime.gpu.work import FftWork

_TRANSFORMS = {
    "FFT": cupy.fft.fftn,
    "IFFT": cupy.fft.ifftn,
    "RFFT": cupy.fft.rfftn,
    "IRFFT": cupy.fft.irfftn,
}


def load_fft(work: FftWork, device: int, captures: CaptureLock) -> Enqueue:
    """Bind a transform on GPU number ``device``. It holds the lock ``captures`` while it enqueues its work."""
    source, target = (
        cupy_array(view, device, view.view.element_type.numpy)
        for view in (work.source, work.target)
    )
    transform = _TRANSFORMS[work.type]
    axes = tuple(range(-work.rank, 0))
    # The operand of an inverse transform to real numbers (IRFFT) does not determine the length of
    # the result.
    sizes = (*source.shape[source.ndim - work.rank : -1], work.length)
    given = {"s": sizes} if work.type == "IRFFT" else {}

    def enqueue(stream: GpuStream) -> None:
        # Plans and CuPy's pool allocate, and wait for the device.
        with captures, stream:  # type: ignore[attr-defined]
            # cuFFT may overwrite the operand of a transform to real numbers.
            operand = source.copy() if given else source
            cupy.copyto(target, transform(operand, axes=axes, **given))

    return enqueue
