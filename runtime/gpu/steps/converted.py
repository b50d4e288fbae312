"""Library calls with conversions: PTX kernels around a library function, in one workspace for all such steps."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.gpu.conversions import Conversion, ConvertedCall
from runtime.gpu.libraries.forms import library_work
from runtime.gpu.step import Action, GpuProgram
from runtime.gpu.steps.kernel_step import KernelStep
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, PtxWork, Work
from runtime.program.strides import StridedView
from runtime.timeline.events import Stream


@dataclass(frozen=True)
class ConvertedStep(KernelStep):
    """``kernel`` computed as ``call``, by a library between conversions."""

    form = "library"
    call: ConvertedCall | None = None

    def bind(self, device: GpuProgram) -> Action:
        call = self.call
        assert call is not None, "planned with it"
        base = device.workspace(call.workspace_bytes)
        arrays = self.on_device(device)
        works: list[Work] = []
        operands = []
        for view, conversion in zip(arrays.operands, call.operands, strict=True):
            if conversion is None:
                operands.append(view)
                continue
            operands.append(_in(base, conversion))
            works.append(self._work(device, conversion, view, operands[-1]))
        (given,) = arrays.results
        result = given if call.result is None else _in(base, call.result)
        called = library_work(
            self.name, call.kernel, KernelArraysOnDevice(tuple(operands), (result,))
        )
        assert called is not None, "planned with it"
        works.append(called)
        if call.result is not None:
            works.append(self._work(device, call.result, result, given))
        enqueued = [device.driver.load(work) for work in works]
        stream = device.stream(Stream.COMPUTE)

        def run() -> None:
            for enqueue in enqueued:
                enqueue(stream)

        return run

    def _work(
        self, device: GpuProgram, conversion: Conversion, source: DeviceView, target: DeviceView
    ) -> Work:
        operands: tuple[DeviceView, ...] = (source,)
        if conversion.filled:
            zero = StridedView(source.view.element_type, (), ())
            operands = (source, DeviceView(device.number_word(0).address, zero))
        arrays = KernelArraysOnDevice(operands, (target,))
        return PtxWork(self.name, conversion.kernel, conversion.launches, arrays)


def _in(base: int, conversion: Conversion) -> DeviceView:
    return DeviceView(base + conversion.start, conversion.view)
