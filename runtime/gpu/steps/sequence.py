"""Sequences of steps."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.gpu.planning import Planner, plans
from runtime.gpu.step import Action, GpuProgram, Step
from runtime.gpu.steps.bound import bound
from runtime.gpu.steps.graph import with_graphs
from runtime.gpu.steps.horizontal import with_horizontal_launches
from runtime.program.thunks import ThunkSequence
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class SequenceStep(Step):
    """Steps of one computation."""

    steps: tuple[Step, ...]

    @property
    def decides(self) -> bool:
        return any(step.decides for step in self.steps)

    def nested(self) -> Iterator[Step]:
        return iter(self.steps)

    def bind(self, device: GpuProgram) -> Action:
        return bound(self.steps, device)


@plans(ThunkSequence)
def plan_sequence(thunk: ThunkSequence, planner: Planner) -> Iterator[Step]:
    yield from plan_steps(thunk, planner)


def plan_steps(thunks: ThunkSequence, planner: Planner) -> tuple[Step, ...]:
    """Return the steps for each of ``thunks``; small kernels share launches, sequences without decisions become graphs.

    Without graphs the steps of each sequence stay together, as timelines need them.
    """
    if not planner.options.graphs:
        steps = tuple(step for thunk in thunks.thunks for step in planner.plan(thunk))
        return (SequenceStep(thunks, steps),)
    launches = with_horizontal_launches(_flat(thunks, planner), planner.multiprocessors)
    return with_graphs(thunks, tuple(launches))


def _flat(thunks: ThunkSequence, planner: Planner) -> Iterator[Step]:
    """Yield the steps of nested sequences inline, because a graph cannot contain a graph."""
    for thunk in thunks.thunks:
        yield from (
            _flat(thunk, planner) if isinstance(thunk, ThunkSequence) else planner.plan(thunk)
        )
