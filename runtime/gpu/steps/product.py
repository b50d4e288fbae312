"""Products with conversions: PTX kernels around a library's product, in one workspace shared by all such steps."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.gpu.converted_product import Conversion, ConvertedProduct
from runtime.gpu.forms import library_work
from runtime.gpu.step import Action, GpuProgram
from runtime.gpu.steps.kernel_step import KernelStep
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, PtxWork, Work
from runtime.timeline.events import Stream


@dataclass(frozen=True)
class ConvertedProductStep(KernelStep):
    """``kernel`` computed as ``product`` between conversions."""

    form = "library"
    product: ConvertedProduct | None = None

    def bind(self, device: GpuProgram) -> Action:
        assert self.product is not None, "planned with it"
        base = device.workspace(self.product.workspace_bytes)
        arrays = self.on_device(device)
        before: list[Work] = []
        operands = []
        for view, conversion in zip(
            arrays.operands, (self.product.lhs, self.product.rhs), strict=True
        ):
            if conversion is None:
                operands.append(view)
                continue
            operands.append(_in(base, conversion))
            before.append(self._work(conversion, view, operands[-1]))
        (result,), after = arrays.results, list[Work]()
        if (conversion := self.product.result) is not None:
            after.append(self._work(conversion, _in(base, conversion), result))
            result = _in(base, conversion)
        product = library_work(
            self.name, self.product.product, KernelArraysOnDevice(tuple(operands), (result,))
        )
        assert product is not None, "planned with it"
        calls = [device.driver.load(work) for work in (*before, product, *after)]
        stream = device.stream(Stream.COMPUTE)

        def run() -> None:
            for call in calls:
                call(stream)

        return run

    def _work(self, conversion: Conversion, source: DeviceView, target: DeviceView) -> Work:
        arrays = KernelArraysOnDevice((source,), (target,))
        return PtxWork(self.name, conversion.kernel, conversion.launches, arrays)


def _in(base: int, conversion: Conversion) -> DeviceView:
    return DeviceView(base + conversion.start, conversion.view)
