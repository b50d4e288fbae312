"""Collectives between GPUs: what a communicator for them gives to the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from collectives.communicator.kinds import Collective
from collectives.communicator.nccl.communicator import NcclCollective, NcclCommunicator
from collectives.communicator.nccl.interface import DeviceArray
from runtime.gpu.views import DeviceView
from spmd.shape import PrimitiveType


class BoundGpuCollective(Protocol):
    """A collective on addresses that were bound to it once."""

    @property
    def name(self) -> str: ...

    def enqueue(self, stream: int) -> None:
        """Put it on the stream with CUDA's handle ``stream``; returns at once. Every rank does so in one order."""
        ...


class GpuCommunicator(Protocol):
    """One device's end. Every rank binds the same collectives in the same order."""

    def cannot(self, collective: Collective, kinds: Sequence[PrimitiveType]) -> str | None:
        """Why a collective on operands of these kinds has to go through the host; the same on all ranks."""
        ...

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
    ) -> BoundGpuCollective:
        """``operands`` and ``results`` are dense: ``first``, and ``view``'s dims and element_type say all of them."""
        ...

    def connect(self) -> None:
        """Join what was bound since the last time: one communicator for each clique, split in one order."""
        ...

    def captured(self) -> Sequence[BoundGpuCollective]:
        """What has been put into graphs since this was asked last."""
        ...

    def replay(
        self, captured: Sequence[BoundGpuCollective], stream: int, launch: Callable[[], None]
    ) -> None:
        """``launch`` on ``stream`` a graph that holds ``captured``."""
        ...

    def wait(self, stream: int) -> None:
        """Until all that is on ``stream`` is done. RunError says which collective has failed, and on whose account."""
        ...


class NcclCollectives:
    """A GpuCommunicator over NCCL."""

    def __init__(self, world: NcclCommunicator) -> None:
        self.world = world

    def cannot(self, collective: Collective, kinds: Sequence[PrimitiveType]) -> str | None:
        return self.world.cannot(collective, [kind.numpy for kind in kinds])

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
    ) -> NcclCollective:
        return self.world.bind(
            collective, name, list(map(_array, operands)), list(map(_array, results))
        )

    def connect(self) -> None:
        self.world.connect()

    def captured(self) -> Sequence[NcclCollective]:
        return self.world.captured()

    def replay(
        self, captured: Sequence[BoundGpuCollective], stream: int, launch: Callable[[], None]
    ) -> None:
        held = [one for one in captured if isinstance(one, NcclCollective)]
        assert len(held) == len(captured), "captured here"
        self.world.replay(held, stream, launch)

    def wait(self, stream: int) -> None:
        self.world.wait(stream)


def _array(view: DeviceView) -> DeviceArray:
    return DeviceArray(view.first, view.view.element_type.numpy, view.view.dims)
