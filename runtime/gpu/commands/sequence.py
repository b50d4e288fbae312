"""Planning of sequences of thunks."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.gpu.command import Action, Command, GpuProgram
from runtime.gpu.commands.bound import bound
from runtime.gpu.commands.graph import with_graphs
from runtime.gpu.commands.horizontal import with_horizontal_launches
from runtime.gpu.planning import Planner, plans
from runtime.program.thunks import ThunkSequence
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class SequenceCommand(Command):
    """Commands of one sequence of thunks, kept together because timelines record the sequence as a whole."""

    commands: tuple[Command, ...]

    @property
    def decides(self) -> bool:
        return any(command.decides for command in self.commands)

    def nested(self) -> Iterator[Command]:
        return iter(self.commands)

    def bind(self, device: GpuProgram) -> Action:
        return bound(self.commands, device)


@plans(ThunkSequence)
def plan_sequence(thunk: ThunkSequence, planner: Planner) -> Iterator[Command]:
    """Yield the commands of a nested sequence."""
    yield from plan_commands(thunk, planner)


def plan_commands(thunks: ThunkSequence, planner: Planner) -> tuple[Command, ...]:
    """Return the commands for ``thunks``, with horizontal launches of small kernels and with CUDA graphs.

    If graphs are disabled, neither is used, and each sequence is one SequenceCommand, as timelines require it.
    """
    if not planner.options.graphs:
        commands = tuple(command for thunk in thunks.thunks for command in planner.plan(thunk))
        return (SequenceCommand(thunks, commands),)
    launches = with_horizontal_launches(_flat(thunks, planner), planner.multiprocessors)
    return with_graphs(thunks, tuple(launches))


def _flat(thunks: ThunkSequence, planner: Planner) -> Iterator[Command]:
    """Yield the commands for ``thunks``, those of nested sequences inline, because a graph cannot contain a graph."""
    for thunk in thunks.thunks:
        yield from (
            _flat(thunk, planner) if isinstance(thunk, ThunkSequence) else planner.plan(thunk)
        )
