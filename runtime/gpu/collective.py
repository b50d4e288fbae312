"""Interface of a communicator between GPUs, and its implementation with NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from collectives.communicator.actions.device_actions import DeviceArray
from collectives.communicator.kinds.op import Collective
from collectives.communicator.nccl.communicator import NcclCollective, NcclCommunicator
from runtime.gpu.views import DeviceView
from spmd.shape import PrimitiveType


class BoundGpuCollective(Protocol):
    """Collective bound to device addresses."""

    @property
    def name(self) -> str:
        """Name of the start instruction, for messages."""
        ...

    def enqueue(self, stream: int) -> None:
        """Enqueue the collective on the CUDA stream with handle ``stream`` and return without waiting.

        Every rank must enqueue its collectives in the same order.
        """
        ...


class GpuCommunicator(Protocol):
    """Communicator of one device with the other GPUs. Every rank must bind the same collectives in the same order."""

    def cannot(self, collective: Collective, kinds: Sequence[PrimitiveType]) -> str | None:
        """Return why ``collective`` on operands of types ``kinds`` must go through the host, or None if it need not.

        All ranks get the same answer.
        """
        ...

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
    ) -> BoundGpuCollective:
        """Bind ``collective`` to its arrays, which must be dense and row-major. ``name`` is used in error messages."""
        ...

    def connect(self) -> None:
        """Create the communicators of all collectives bound since the last call, one for each distinct group.

        Every rank must call it at the same point; the communicators are split off in the same order on all ranks.
        """
        ...

    def captured(self) -> Sequence[BoundGpuCollective]:
        """Return the collectives captured into CUDA graphs since the last call, in capture order."""
        ...

    def replay(
        self, captured: Sequence[BoundGpuCollective], stream: int, launch: Callable[[], None]
    ) -> None:
        """Launch a graph that contains the collectives ``captured`` on the CUDA stream with handle ``stream``.

        ``launch`` enqueues the graph; the communicator adds the checks and ordering that ``enqueue`` adds otherwise.
        """
        ...

    def wait(self, stream: int) -> None:
        """Block the host until all work enqueued on ``stream`` is done.

        Raises RunError if a collective fails or times out; a timeout names the collective and the missing ranks.
        """
        ...


class NcclCollectives:
    """GpuCommunicator that uses NCCL."""

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
