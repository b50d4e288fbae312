"""Collectives between GPUs: what a communicator for them gives to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from collectives.communicator.kinds import Collective
from runtime.gpu.views import DeviceView


class BoundGpuCollective(Protocol):
    """A collective on addresses that were bound to it once."""

    @property
    def can_be_captured(self) -> bool:
        """Whether it may be part of a graph."""
        ...

    def enqueue(self, stream: int) -> None:
        """Put it on the stream with CUDA's handle ``stream``; returns at once. Every rank does so in one order."""
        ...


class GpuCommunicator(Protocol):
    """One device's end (collectives/communicator/nccl*.py). Every rank binds the same collectives in the same order."""

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

    def poll(self) -> None:
        """PeerFailedError where a collective has failed since; returns at once."""
        ...
