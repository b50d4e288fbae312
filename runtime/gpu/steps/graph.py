"""CUDA graphs: sequences of steps without decisions, captured once on the streams, then replayed.

Addresses never change, so a graph is never captured again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from runtime.gpu.collective import BoundGpuCollective
from runtime.gpu.driver import GpuGraph
from runtime.gpu.step import Action, GpuProgram, Step
from runtime.gpu.steps.bound import bound
from runtime.gpu.steps.collective import DoneStep, StartStep
from runtime.program.thunks import Thunk
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass

#: Fewest steps of a graph: launching it takes as long as enqueuing one step.
LEAST_STEPS = 2


@dataclass(frozen=True)
class GraphStep(Step):
    """``steps`` without decisions; collectives that start within also end within.

    The first time they run one by one, because libraries make preparations that a capture does not allow.
    """

    steps: tuple[Step, ...]

    def nested(self) -> Iterator[Step]:
        return iter(self.steps)

    def bind(self, device: GpuProgram) -> Action:
        one_by_one, stream = bound(self.steps, device), device.stream(Stream.COMPUTE)
        graph: GpuGraph | None = None
        captured: Sequence[BoundGpuCollective] = ()
        has_run = False

        def run() -> None:
            nonlocal graph, captured, has_run
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
                captured = () if device.collectives is None else device.collectives.captured()
            if device.collectives is not None and captured:
                device.collectives.replay(captured, stream.ptr, partial(graph.launch, stream))
            else:
                graph.launch(stream)

        return run


def with_graphs(thunk: Thunk, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Group ``steps`` of ``thunk`` into graphs. A collective in flight at a decision is in no graph."""
    found: list[Step] = []
    for decides, group in groupby(steps, key=lambda step: step.decides):
        for stretch in [tuple(group)] if decides else _closed(tuple(group)):
            if decides or len(stretch) < LEAST_STEPS:
                found.extend(stretch)
            else:
                found.append(GraphStep(thunk, stretch))
    return tuple(found)


def _closed(stretch: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Cut ``stretch`` at starts and dones whose counterpart lies outside, recursively: those stand alone."""
    starts = {step.name for step in stretch if isinstance(step, StartStep)}
    dones = {step.start for step in stretch if isinstance(step, DoneStep)}
    is_open = [_collective_of(step) in starts ^ dones for step in stretch]
    if not any(is_open) or len(stretch) == 1:
        yield stretch
        return
    for cut, group in groupby(zip(is_open, stretch, strict=True), key=itemgetter(0)):
        part = tuple(step for _, step in group)
        if cut:
            yield from ((step,) for step in part)
        else:
            yield from _closed(part)


def _collective_of(step: Step) -> str | None:
    if isinstance(step, StartStep):
        return step.name
    return step.start if isinstance(step, DoneStep) else None
