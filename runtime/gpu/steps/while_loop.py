"""Loops: a known number of trips, or a predicate that the host reads back before each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.gpu.planning import Planner, plans
from runtime.gpu.read_back import read_back
from runtime.gpu.step import Action, GpuProgram, Step
from runtime.gpu.steps.bound import bound
from runtime.gpu.steps.sequence import planned
from runtime.thunks.while_loop import WhileThunk


@dataclass(frozen=True)
class CountedLoopStep(Step):
    """``body``, ``trips`` times. The condition only makes the predicate, which nobody reads."""

    body: tuple[Step, ...]
    trips: int

    @property
    def decides(self) -> bool:
        # A graph would hold every trip's nodes: the body is one, launched as often.
        return True

    def nested(self) -> Iterator[Step]:
        return iter(self.body)

    def bind(self, device: GpuProgram) -> Action:
        body = bound(self.body, device)

        def run() -> None:
            for _ in range(self.trips):
                body()

        return run


@dataclass(frozen=True)
class WhileStep(Step):
    """``condition``; while the predicate is true then, ``body`` and the condition again."""

    condition: tuple[Step, ...]
    body: tuple[Step, ...]
    predicate: ArrayView

    @property
    def decides(self) -> bool:
        return True

    def nested(self) -> Iterator[Step]:
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
def plan_while(thunk: WhileThunk, planner: Planner) -> Iterator[Step]:
    body = planned(thunk.body, planner)
    if thunk.trips is not None:
        yield CountedLoopStep(thunk, body, thunk.trips)
    else:
        yield WhileStep(thunk, planned(thunk.condition, planner), body, thunk.predicate)
