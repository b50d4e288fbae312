"""CUDA graphs: stretches of steps without decisions, put on the streams once while these are captured, then replayed.

Addresses never change, so a graph is never captured anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

from runtime.gpu.collective import BoundGpuCollective
from runtime.gpu.driver import GpuGraph
from runtime.gpu.step import Action, GpuProgram, Step
from runtime.gpu.steps.bound import bound
from runtime.gpu.steps.collective import DoneStep, StartStep
from runtime.program.thunks.thunk import Thunk
from runtime.timeline.events import Stream

#: Steps of a graph, at least: launching it takes as long as putting one on a stream.
LEAST_STEPS = 2


@dataclass(frozen=True)
class GraphStep(Step):
    """``steps``, none of which decides anything; collectives that start within are over within.

    The first time they are done one by one: libraries make ready what may not be made in a capture.
    """

    steps: tuple[Step, ...]

    def nested(self) -> Iterator[Step]:
        return iter(self.steps)

    def bind(self, device: GpuProgram) -> Action:
        one_by_one, stream = bound(self.steps, device), device.stream(Stream.COMPUTE)
        graph: GpuGraph | None = None
        held: Sequence[BoundGpuCollective] = ()
        has_run = False

        def run() -> None:
            nonlocal graph, held, has_run
            if not has_run or not device.uses_graphs:
                one_by_one()
                has_run = True
                return
            if graph is None:
                with device.driver.captures:
                    stream.begin_capture()
                    try:
                        one_by_one()
                    finally:
                        graph = stream.end_capture()
                graph.upload(stream)
                held = () if device.collectives is None else device.collectives.captured()
            if device.collectives is not None and held:
                device.collectives.replay(held, stream.ptr, partial(graph.launch, stream))
            else:
                graph.launch(stream)

        return run


def with_graphs(thunk: Thunk, steps: Sequence[Step]) -> tuple[Step, ...]:
    """``steps`` of ``thunk`` with graphs where that can be. A collective in flight at a decision is in no graph."""
    found: list[Step] = []
    for decides, group in groupby(steps, key=lambda step: step.decides):
        for stretch in [tuple(group)] if decides else _closed(tuple(group)):
            if decides or len(stretch) < LEAST_STEPS:
                found.extend(stretch)
            else:
                found.append(GraphStep(thunk, stretch))
    return tuple(found)


def _closed(stretch: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """``stretch`` cut at starts and dones whose other end lies outside, until none is left: those stand alone."""
    starts = {step.name for step in stretch if isinstance(step, StartStep)}
    dones = {step.start for step in stretch if isinstance(step, DoneStep)}
    is_open = [_flight_of(step) in starts ^ dones for step in stretch]
    if not any(is_open) or len(stretch) == 1:
        yield stretch
        return
    for cut, group in groupby(zip(is_open, stretch, strict=True), key=itemgetter(0)):
        part = tuple(step for _, step in group)
        if cut:
            yield from ((step,) for step in part)
        else:
            yield from _closed(part)


def _flight_of(step: Step) -> str | None:
    if isinstance(step, StartStep):
        return step.name
    return step.start if isinstance(step, DoneStep) else None
