"""NCCL's end of a GPU as any test takes a communicator: arrays of the host go to the GPU, and what came of them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collectives.communicator.actions.device_actions import DeviceArray
from collectives.communicator.interface import BoundCollective
from collectives.communicator.kinds.op import Collective
from collectives.communicator.nccl.communicator import NcclCollective, NcclCommunicator
from runtime.gpu.driver import GpuBlock, GpuDriver, GpuStream
from runtime.gpu.views import Span, holder, merged


class OnGpu:
    """A Communicator. What NCCL cannot do is the host's, as it is in a program."""

    def __init__(self, inner: NcclCommunicator, driver: GpuDriver) -> None:
        self.inner, self.driver = inner, driver
        self.stream = driver.stream()
        self._kept: list[GpuBlock] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner.host, name)

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
    ) -> BoundCollective:
        if self.inner.cannot(collective, [operand.dtype for operand in operands]):
            return self.inner.host.bind(collective, name, operands, results)
        arrays = [*operands, *results]
        spans = merged([span_of(array) for array in arrays])
        blocks = [self.driver.allocate(span.size) for span in spans]
        self._kept += blocks

        def place(array: np.ndarray) -> DeviceArray:
            if array.nbytes == 0:
                return DeviceArray(0, array.dtype, array.shape)
            number = holder(spans, span_of(array))
            offset = array.ctypes.data - spans[number].start
            return DeviceArray(blocks[number].address + offset, array.dtype, array.shape)

        on_device = {id(array): place(array) for array in arrays}
        bound = self.inner.bind(
            collective,
            name,
            [on_device[id(one)] for one in operands],
            [on_device[id(one)] for one in results],
        )
        ups = [(on_device[id(one)].pointer, one) for one in arrays if one.nbytes]
        downs = [(on_device[id(one)].pointer, one) for one in results if one.nbytes]
        return BoundOnGpu(self.inner, bound, self.driver, self.stream, ups, downs)

    def connect(self) -> None:
        self.inner.connect()
        self.inner.host.connect()


@dataclass
class BoundOnGpu:
    world: NcclCommunicator
    bound: NcclCollective
    driver: GpuDriver
    stream: GpuStream
    ups: list[tuple[int, np.ndarray]]
    downs: list[tuple[int, np.ndarray]]
    running: bool = False

    def start(self) -> None:
        for pointer, array in self.ups:
            self.driver.upload(pointer, array, self.stream)
        self.running = True
        self.bound.enqueue(self.stream.ptr)

    def test(self) -> bool:
        self.wait()
        return True

    def wait(self) -> None:
        if self.running:
            self.world.wait(self.stream.ptr)
            for pointer, array in self.downs:
                self.driver.download(array, pointer, self.stream)
            self.stream.synchronize()
        self.running = False

    def complete(self) -> None:
        self.start()
        self.wait()


def span_of(array: np.ndarray) -> Span:
    return Span(array.ctypes.data, array.ctypes.data + array.nbytes)
