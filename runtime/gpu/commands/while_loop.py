"""While loops: with a known trip count, or with a predicate that the host downloads before each trip."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.buffers.types import ArrayView
from runtime.gpu.command import Action, Command, GpuProgram, HostCommand
from runtime.gpu.commands.bound import bound
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.planning import Planner, plans
from runtime.gpu.transfers.read_back import read_back
from runtime.program.thunks import WhileThunk
from spmd.lazy_dataclass import dataclass


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


@plans(WhileThunk)
def plan_while(thunk: WhileThunk, planner: Planner) -> Iterator[Command]:
    """Yield the command of a while loop: with its trip count if it is known, else with a download before each trip."""
    body = plan_commands(thunk.body, planner)
    if thunk.trips is not None:
        yield CountedLoopCommand(thunk, body, thunk.trips)
    else:
        yield WhileCommand(thunk, plan_commands(thunk.condition, planner), body, thunk.predicate)
