"""Steps of one rank for one collective, as plain data: copies on its GPU, and calls of NCCL in groups.

Addresses are final; a stream and a communicator come with each run. Collectives follow each other on a GPU, so all use
the same scratch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from collectives.communicator.nccl.api import NcclApi, NcclComm, NcclOperation, NcclType
from collectives.communicator.nccl.interface import DeviceMemory


@dataclass(frozen=True)
class CopyRows:
    """``rows`` rows of ``row_bytes`` bytes; pitches: bytes from one row's begin to the next one's."""

    target: int
    target_pitch: int
    source: int
    source_pitch: int
    row_bytes: int
    rows: int

    def put(self, memory: DeviceMemory, stream: int) -> None:
        if self.rows == 1 or self.row_bytes == self.target_pitch == self.source_pitch:
            memory.copy(self.target, self.source, self.rows * self.row_bytes, stream)
        else:
            memory.copy_rows(
                self.target, self.target_pitch, self.source, self.source_pitch, self.row_bytes, self.rows, stream
            )  # fmt: skip


@dataclass(frozen=True)
class Zero:
    target: int
    num_bytes: int

    def put(self, memory: DeviceMemory, stream: int) -> None:
        memory.zero(self.target, self.num_bytes, stream)


class NcclCall(ABC):
    """One function of NCCL with its arguments but communicator and stream."""

    @abstractmethod
    def put(self, api: NcclApi, comm: NcclComm, stream: int) -> None: ...


@dataclass(frozen=True)
class AllReduceCall(NcclCall):
    send: int
    receive: int
    count: int
    kind: NcclType
    operation: NcclOperation

    def put(self, api: NcclApi, comm: NcclComm, stream: int) -> None:
        api.all_reduce(comm, self.send, self.receive, self.count, self.kind, self.operation, stream)


@dataclass(frozen=True)
class ReduceScatterCall(NcclCall):
    """``count`` elements are received."""

    send: int
    receive: int
    count: int
    kind: NcclType
    operation: NcclOperation

    def put(self, api: NcclApi, comm: NcclComm, stream: int) -> None:
        api.reduce_scatter(
            comm, self.send, self.receive, self.count, self.kind, self.operation, stream
        )


@dataclass(frozen=True)
class AllGatherCall(NcclCall):
    """``count`` bytes are sent."""

    send: int
    receive: int
    count: int

    def put(self, api: NcclApi, comm: NcclComm, stream: int) -> None:
        api.all_gather(comm, self.send, self.receive, self.count, NcclType.UINT8, stream)


@dataclass(frozen=True)
class BroadcastCall(NcclCall):
    """``count`` bytes from the first member."""

    send: int
    receive: int
    count: int

    def put(self, api: NcclApi, comm: NcclComm, stream: int) -> None:
        api.broadcast(comm, self.send, self.receive, self.count, NcclType.UINT8, 0, stream)


@dataclass(frozen=True)
class SendCall(NcclCall):
    """``count`` bytes to member ``peer``."""

    source: int
    count: int
    peer: int

    def put(self, api: NcclApi, comm: NcclComm, stream: int) -> None:
        api.send(comm, self.source, self.count, NcclType.UINT8, self.peer, stream)


@dataclass(frozen=True)
class ReceiveCall(NcclCall):
    target: int
    count: int
    peer: int

    def put(self, api: NcclApi, comm: NcclComm, stream: int) -> None:
        api.receive(comm, self.target, self.count, NcclType.UINT8, self.peer, stream)


@dataclass(frozen=True)
class DeviceSteps:
    """In this order: what is laid out for NCCL, its calls in one group, what is put where it belongs."""

    before: tuple[CopyRows | Zero, ...] = ()
    calls: tuple[NcclCall, ...] = ()
    after: tuple[CopyRows | Zero, ...] = ()

    def put(self, api: NcclApi, comm: NcclComm | None, memory: DeviceMemory, stream: int) -> None:
        """On ``stream``; ``comm`` is None where nothing is called."""
        for step in self.before:
            step.put(memory, stream)
        if self.calls:
            assert comm is not None, "whoever calls NCCL has a communicator"
            api.group_start()
            try:
                for call in self.calls:
                    call.put(api, comm, stream)
            finally:
                api.group_end()
        for step in self.after:
            step.put(memory, stream)
