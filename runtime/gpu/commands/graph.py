"""CUDA graphs: consecutive commands without host decisions are captured once on the streams, then replayed.

The addresses of a loaded program never change, so a graph is captured only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from collectives.communicator.nccl.communicator import NcclCollective
from runtime.gpu.command import Action, Command, GpuProgram
from runtime.gpu.commands.bound import bound
from runtime.gpu.commands.collective import DoneCommand, StartCommand
from runtime.gpu.driver import GpuGraph, GpuStream
from runtime.program.thunks import Thunk
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass

#: Fewest commands of a graph. Launching a graph takes as long as enqueuing one command.
LEAST_COMMANDS = 2


@dataclass(frozen=True)
class GraphCommand(Command):
    """CUDA graph of ``commands``, none of which needs the host. Each collective that starts in it also ends in it.

    The first run executes the commands one by one, because libraries make preparations that a capture does not allow.
    The second run captures the graph and launches it.
    """

    commands: tuple[Command, ...]

    def nested(self) -> Iterator[Command]:
        return iter(self.commands)

    def bind(self, device: GpuProgram) -> Action:
        one_by_one, stream = bound(self.commands, device), device.stream(Stream.COMPUTE)
        graphs, key = device.graphs, object()
        captured: Sequence[NcclCollective] = ()
        has_run = False

        def launch() -> None:
            # After a failure the graphs are gone, and the next wait reports it. The frame of ``run`` keeps none alive.
            graph = graphs.get(key)
            if graph is not None:
                graph.launch(stream)

        def run() -> None:
            nonlocal captured, has_run
            if not has_run or not device.uses_graphs:
                one_by_one()
                has_run = True
                return
            if key not in graphs:
                graphs[key] = _captured(one_by_one, stream, device)
                captured = () if device.collectives is None else device.collectives.captured()
            if device.collectives is not None and captured:
                device.collectives.replay(captured, stream.ptr, launch)
            else:
                launch()

        return run


def _captured(one_by_one: Action, stream: GpuStream, device: GpuProgram) -> GpuGraph:
    """Return the graph of the work that ``one_by_one`` enqueues on ``stream``."""
    with device.driver.captures:
        stream.begin_capture()
        try:
            one_by_one()
        finally:
            graph = stream.end_capture()
    graph.upload(stream)
    return graph


def with_graphs(thunk: Thunk, commands: Sequence[Command]) -> tuple[Command, ...]:
    """Group the commands of the sequence ``thunk`` into graphs, and return graphs and ungrouped commands in order.

    A collective that is in flight while a command that needs the host runs is in no graph.
    """
    found: list[Command] = []
    for decides, group in groupby(commands, key=lambda command: command.decides):
        for stretch in [tuple(group)] if decides else _closed(tuple(group)):
            if decides or len(stretch) < LEAST_COMMANDS:
                found.extend(stretch)
            else:
                found.append(GraphCommand(thunk, stretch))
    return tuple(found)


def _closed(stretch: tuple[Command, ...]) -> Iterator[tuple[Command, ...]]:
    """Split ``stretch`` so that no part of several commands has a start without its done or a done without its start.

    Each such start or done becomes a part of its own; the parts between them are split again, since the split may
    separate other pairs.
    """
    starts = {command.name for command in stretch if isinstance(command, StartCommand)}
    dones = {command.start for command in stretch if isinstance(command, DoneCommand)}
    is_open = [_collective_of(command) in starts ^ dones for command in stretch]
    if not any(is_open) or len(stretch) == 1:
        yield stretch
        return
    for cut, group in groupby(zip(is_open, stretch, strict=True), key=itemgetter(0)):
        part = tuple(command for _, command in group)
        if cut:
            yield from ((command,) for command in part)
        else:
            yield from _closed(part)


def _collective_of(command: Command) -> str | None:
    if isinstance(command, StartCommand):
        return command.name
    return command.start if isinstance(command, DoneCommand) else None
