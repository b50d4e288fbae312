"""Ranks with a GPU each, which is this process's memory: NcclCommunicator as any test takes a communicator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from loopback_ranks import run_ranks

from collectives.communicator.actions.device_actions import DeviceArray
from collectives.communicator.interface import BoundCollective
from collectives.communicator.kinds.op import Collective
from collectives.communicator.loopback.communicator import LoopbackCommunicator
from collectives.communicator.nccl.communicator import NcclCollective, NcclCommunicator
from tests.collectives.communicator.nccl.host_device import HostDevice
from tests.collectives.communicator.nccl.nccl_double import World

Result = TypeVar("Result")
COMPUTE, COMMUNICATION = 1, 2


def on_device(array: np.ndarray) -> DeviceArray:
    assert array.flags.c_contiguous
    return DeviceArray(array.ctypes.data, array.dtype, array.shape)


@dataclass
class OnArrays:
    """A Communicator whose collectives are NCCL's, on arrays of the device that is the host.

    What NCCL cannot do is the host's, as it is in a program.
    """

    inner: NcclCommunicator
    device: HostDevice
    kept: list[np.ndarray] = field(default_factory=list)

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
        self.kept += [*operands, *results]
        bound = self.inner.bind(
            collective, name, list(map(on_device, operands)), list(map(on_device, results))
        )
        return BoundOnArrays(self.inner, bound)

    def connect(self) -> None:
        self.inner.connect()
        self.inner.host.connect()


@dataclass
class BoundOnArrays:
    world: NcclCommunicator
    bound: NcclCollective

    running: bool = False

    def start(self) -> None:
        self.running = True
        self.bound.enqueue(COMMUNICATION)

    def test(self) -> bool:
        self.wait()
        return True

    def wait(self) -> None:
        if self.running:
            self.world.wait(COMMUNICATION)
        self.running = False

    def complete(self) -> None:
        self.start()
        self.wait()


def run_nccl(
    size: int,
    program: Callable[[OnArrays], Result],
    world: World | None = None,
    timeout_seconds: float = 60.0,
    **options: object,
) -> list[Result]:
    """``program`` on every rank of a world whose collectives are NCCL's double's."""
    shared = world or World(size)

    def on_rank(host: LoopbackCommunicator) -> Result:
        with HostDevice() as device:
            return on_device_of(host, device)

    def on_device_of(host: LoopbackCommunicator, device: HostDevice) -> Result:
        api = shared.api(host.rank, device)
        inner = NcclCommunicator(
            host, api, device, timeout_seconds=timeout_seconds, **options  # type: ignore[arg-type]
        )  # fmt: skip
        result = program(OnArrays(inner, device))
        host.barrier()
        inner.leave()
        return result

    return run_ranks(size, on_rank, timeout_seconds)
