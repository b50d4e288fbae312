"""Collectives between GPUs: the interface of a GPU communicator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from collectives.communicator.actions.device_actions import DeviceArray
from collectives.communicator.kinds.op import Collective
from collectives.communicator.nccl.communicator import NcclCollective, NcclCommunicator
from runtime.gpu.views import DeviceView
from spmd.shape import PrimitiveType


class BoundGpuCollective(Protocol):
    """Collective that is bound to addresses."""

    @property
    def name(self) -> str: ...

    def enqueue(self, stream: int) -> None:
        """Enqueue it on the stream with CUDA's handle ``stream``; return at once. Every rank uses the same order."""
        ...


class GpuCommunicator(Protocol):
    """Communicator of one device. Every rank binds the same collectives in the same order."""

    def cannot(self, collective: Collective, kinds: Sequence[PrimitiveType]) -> str | None:
        """Return why a collective on operands of these kinds must go through the host, or None; equal on all ranks."""
        ...

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
    ) -> BoundGpuCollective:
        """Bind a collective. ``operands`` and ``results`` are dense; ``first``, dims and element_type describe them."""
        ...

    def connect(self) -> None:
        """Connect what was bound since the last call: one communicator for each clique, split in the same order."""
        ...

    def captured(self) -> Sequence[BoundGpuCollective]:
        """Return the collectives that were captured into graphs since the last call."""
        ...

    def replay(
        self, captured: Sequence[BoundGpuCollective], stream: int, launch: Callable[[], None]
    ) -> None:
        """Call ``launch``, which puts a graph that holds ``captured`` on ``stream``."""
        ...

    def wait(self, stream: int) -> None:
        """Wait until all work on ``stream`` is done.

        Raises RunError, which names the failed collective and the rank that caused it.
        """
        ...


class NcclCollectives:
    """GpuCommunicator over NCCL."""

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
        own = [one for one in captured if isinstance(one, NcclCollective)]
        assert len(own) == len(captured), "captured here"
        self.world.replay(own, stream, launch)

    def wait(self, stream: int) -> None:
        self.world.wait(stream)


def _array(view: DeviceView) -> DeviceArray:
    return DeviceArray(view.first, view.view.element_type.numpy, view.view.dims)
