"""While loops: with a known trip count, with a predicate that the host downloads before each trip, or on the host."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.loop.scalar_loop import bind_scalar_loop
from runtime.gpu.command import Action, Command, GpuProgram, HostCommand, on_host
from runtime.gpu.commands.bound import bound
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.planning import Planner, plans
from runtime.gpu.transfers.read_back import read_back
from runtime.program.thunks import WhileThunk
from runtime.program.thunks.scalar_loop import ScalarLoopPlan, plan_scalar_loop
from spmd.lazy_dataclass import dataclass

#: Largest trip count of a scalar loop that runs on the device. Up to it, the loop would take longer on the host, which
#: has to wait for the device first.
MOST_ON_DEVICE = 8


@dataclass(frozen=True)
class CountedLoopCommand(HostCommand):
    """Loop that runs ``body`` ``trips`` times. The condition does not run, since its predicate is not needed.

    A graph of the loop would contain the nodes of every trip. Instead the body is a graph, launched once for each trip.
    """

    body: tuple[Command, ...]
    trips: int

    def nested(self) -> Iterator[Command]:
        return iter(self.body)

    def bind(self, device: GpuProgram) -> Action:
        body = bound(self.body, device)

        def run() -> None:
            for _ in range(self.trips):
                body()

        return run


@dataclass(frozen=True)
class WhileCommand(HostCommand):
    """Loop that runs ``condition`` and, while its ``predicate`` is true, ``body`` and ``condition`` again."""

    condition: tuple[Command, ...]
    body: tuple[Command, ...]
    predicate: ArrayView

    def nested(self) -> Iterator[Command]:
        yield from self.condition
        yield from self.body

    def bind(self, device: GpuProgram) -> Action:
        condition, body = bound(self.condition, device), bound(self.body, device)
        holds = read_back(device, self.predicate)

        def run() -> None:
            condition()
            while holds():
                body()
                condition()

        return run


@dataclass(frozen=True)
class HostedLoopCommand(HostCommand):
    """Loop on scalars whose trips all run on the host, since one kernel launch takes longer than many such trips."""

    loop: ScalarLoopPlan

    def bind(self, device: GpuProgram) -> Action:
        views = {element: device.view(element) for element in self.loop.elements}
        mirror = device.mirror(tuple(views.values()), tuple(views.values()))
        some_trips = bind_scalar_loop(self.loop, lambda element: mirror.array(views[element]))
        goes_on = mirror.array(views[self.loop.elements[0]])

        def trips() -> None:
            some_trips()
            while goes_on:
                some_trips()

        return on_host(device, mirror, trips)


@plans(WhileThunk)
def plan_while(thunk: WhileThunk, planner: Planner) -> Iterator[Command]:
    """Yield the command of a while loop.

    A loop on scalars runs on the host, unless its trip count is known and at most MOST_ON_DEVICE. Other loops run on
    the device, with a known trip count or with a download of the predicate before each trip.
    """
    scalars = plan_scalar_loop(thunk)
    if scalars is not None and (thunk.trips is None or thunk.trips > MOST_ON_DEVICE):
        yield HostedLoopCommand(thunk, scalars)
        return
    body = plan_commands(thunk.body, planner)
    if thunk.trips is not None:
        yield CountedLoopCommand(thunk, body, thunk.trips)
    else:
        yield WhileCommand(thunk, plan_commands(thunk.condition, planner), body, thunk.predicate)
