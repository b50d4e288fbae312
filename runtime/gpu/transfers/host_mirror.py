"""Mirror of device arrays in pinned host memory, for commands that the host runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.buffers.types import ALIGNMENT, aligned
from runtime.gpu.driver import GpuDriver, GpuStream
from runtime.gpu.views import DeviceView, Span, holder, merged
from spmd.literal import NDArray


class Mirror:
    """Mirror in host memory of the device bytes that one command reads and writes.

    Overlapping arrays share bytes in the mirror as they do on the device. Operands are downloaded. A result whose
    elements do not fill its span is downloaded as well, because the upload writes the entire span.
    """

    def __init__(
        self,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
        scratch: Sequence[DeviceView] = (),
    ) -> None:
        self._spans = merged(view.span for view in (*operands, *results, *scratch))
        given = merged(v.span for v in (*operands, *(r for r in results if not r.fills_span)))
        self._read = given
        self._written = merged(view.span for view in results)
        # Each span keeps its device address modulo the alignment, so host kernels see equal alignment.
        self._offsets: list[int] = []
        end = 0
        for span in self._spans:
            start = aligned(end) + span.start % ALIGNMENT
            self._offsets.append(start)
            end = start + span.size
        self.num_bytes = end
        self._memory: NDArray | None = None

    def lie_in(self, memory: NDArray) -> None:
        """Store the mirror in ``memory``, an aligned byte array of at least ``num_bytes``."""
        self._memory = memory

    def array(self, view: DeviceView) -> NDArray:
        """Return the host array that mirrors ``view``, with the same shape, type and strides."""
        shape = view.view
        if shape.num_elements == 0:
            return np.zeros(shape.dims, shape.element_type.numpy)
        number = holder(self._spans, view.span)
        start = self._offsets[number] + view.first - self._spans[number].start
        return np.ndarray(shape.dims, shape.element_type.numpy, self.memory, start, shape.strides)

    def bring(self, driver: GpuDriver, stream: GpuStream) -> None:
        """Enqueue the download of the operands on ``stream``."""
        for span in self._read:
            driver.download(self._bytes(span), span.start, stream)

    def send(self, driver: GpuDriver, stream: GpuStream) -> None:
        """Enqueue the upload of the results on ``stream``."""
        for span in self._written:
            driver.upload(span.start, self._bytes(span), stream)

    @property
    def memory(self) -> NDArray:
        """Host memory of the mirror. ``lie_in`` must have set it."""
        assert self._memory is not None, "it lies nowhere yet"
        return self._memory

    def _bytes(self, span: Span) -> NDArray:
        number = holder(self._spans, span)
        start = self._offsets[number] + span.start - self._spans[number].start
        return self.memory[start : start + span.size]
