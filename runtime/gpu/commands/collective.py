"""Commands of collectives: on the communication stream between two events, or through the host.

compute        ... ready ────────── goes on ────────── waits for `over` ...
communication      └ waits for `ready` ── collective ── over
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from collectives.communicator.actions.device_actions import DeviceArray
from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.types import ArrayView
from runtime.gpu.command import Action, Command, GpuProgram, HostCommand
from runtime.gpu.driver import GpuEvent, GpuStream
from runtime.gpu.planning import Planner, plans
from runtime.gpu.transfers.staged_collective import StagedCollective
from runtime.gpu.views import DeviceView
from runtime.program.thunks import CollectiveDoneThunk, CollectiveStartThunk
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class StartCommand(Command):
    """Start of a collective between GPUs: enqueues it on the communication stream, after the compute stream's work."""

    through_host: ClassVar[bool] = False
    op: CollectiveOp
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]

    def bind(self, device: GpuProgram) -> Action:
        assert device.collectives is not None, "planned for collectives between GPUs"
        bound = device.collectives.bind(
            self.op.of_rank(device.communicator.rank),
            self.name,
            [_placed(device.view(array)) for array in self.operands],
            [_placed(device.view(array)) for array in self.results],
        )
        compute, communication = device.stream(Stream.COMPUTE), device.stream(Stream.COMMUNICATION)
        ready, over = device.driver.event(), device.driver.event()
        device.pending_collectives[self.name] = StreamCollective(compute, over)
        handle = communication.ptr

        def run() -> None:
            compute.record(ready)
            communication.wait_event(ready)
            bound.enqueue(handle)
            communication.record(over)

        return run


def _placed(view: DeviceView) -> DeviceArray:
    """Return ``view``, which is dense and row-major, as NCCL's collectives take it."""
    return DeviceArray(view.first, view.view.element_type.numpy, view.view.dims)


@dataclass(frozen=True)
class HostedStartCommand(StartCommand, HostCommand):
    """Start of a collective through the host: downloads the operands, waits, and starts a collective between hosts."""

    through_host: ClassVar[bool] = True

    def bind(self, device: GpuProgram) -> Action:
        collective = self.op.of_rank(device.communicator.rank)
        pending = StagedCollective(self.name, collective, device, self.operands, self.results)
        device.pending_collectives[self.name] = pending
        return pending.start


@dataclass(frozen=True)
class BlockingCommand(HostCommand):
    """Wait for the collective of the same thunk, directly after its start. It acts only in blocking steps."""

    def bind(self, device: GpuProgram) -> Action:
        pending = device.pending_collectives[self.name]
        return lambda: pending.finish() if device.is_blocking else None


@dataclass(frozen=True)
class StreamCollective:
    """Pending collective on the communication stream. ``over`` is the event after it."""

    compute: GpuStream
    over: GpuEvent

    def finish(self) -> None:
        self.compute.wait_event(self.over)


@dataclass(frozen=True)
class DoneCommand(Command):
    """Done of a collective: makes the compute stream wait for the collective whose start has the name ``start``.

    through_host: the collective goes through the host, which then waits as well.
    """

    start: str
    through_host: bool

    @property
    def decides(self) -> bool:
        return self.through_host

    def bind(self, device: GpuProgram) -> Action:
        return device.pending_collectives[self.start].finish


@plans(CollectiveStartThunk)
def plan_start(thunk: CollectiveStartThunk, planner: Planner) -> Iterator[Command]:
    """Yield the start of a collective, and the wait of blocking steps if there are any."""
    kind = HostedStartCommand if planner.goes_by_host(thunk) else StartCommand
    yield kind(thunk, thunk.op, thunk.operands, thunk.results)
    if planner.has_blocking_steps:
        yield BlockingCommand(thunk)


@plans(CollectiveDoneThunk)
def plan_done(thunk: CollectiveDoneThunk, planner: Planner) -> Iterator[Command]:
    """Yield the done of a collective, whose start must have been planned before."""
    yield DoneCommand(thunk, thunk.start, thunk.start in planner.by_host)
