"""Start a collective, and wait for it. A blocking collective is a start and its done in a row.

What differs between kinds is a plan, which gives each rank its own ``Collective``: see ``collective_plans.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collectives.communicator.interface import BoundCollective
from collectives.communicator.native_collective import NativeCollective
from runtime.buffers.types import ArrayView
from runtime.cpu.step.segment import (
    Action,
    PythonWait,
    Segment,
    either,
    joined,
    segment_of,
    stamping,
)
from runtime.cpu.step.segment_ir import SegmentRow
from runtime.program.thunks.collective_plans import CollectivePlan
from runtime.program.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind, uses
from spmd.literal import NDArray


@dataclass(frozen=True)
class CollectiveStartThunk(Thunk):
    """Begin a collective; from here to its done, operands are not to be written, nor results touched."""

    plan: CollectivePlan
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)

    def prepare(self, program: LoadedProgram) -> Action | Segment:
        communicator = program.communicator
        bound = communicator.bind(
            self.plan.of_rank(communicator.rank),
            self.name,
            [program.array(place) for place in self.operands],
            [program.array(place) for place in self.results],
        )
        program.bound_collectives[self.name] = bound
        if not isinstance(bound, NativeCollective):
            return bound.start
        if bound.needs_progress:
            program.progress.start(self.name)
        return Segment((SegmentRow.start(program.number_of(self), bound),))

    def wait_if_blocking(self, program: LoadedProgram, blocking: NDArray) -> Segment:
        """For a step whose ``blocking`` is true: waits for the collective where it has been started."""
        number = program.number_of(self)
        wait = _wait_for(program.bound_collectives[self.name], self, program)
        if program.recorder is not None:
            wait = joined((wait, stamping(number, program.recorder.waited(self))))
        return either(number, blocking, wait, Segment())


@dataclass(frozen=True)
class CollectiveDoneThunk(Thunk):
    """Wait until the collective that thunk ``start`` began has written ``results``."""

    start: str
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        """Nothing of its own: the start's uses last until here."""
        return iter(())

    def prepare(self, program: LoadedProgram) -> Segment:
        program.progress.finish(self.start)
        return _wait_for(program.bound_collectives[self.start], self, program)


def _wait_for(bound: BoundCollective, thunk: Thunk, program: LoadedProgram) -> Segment:
    """Rows of ``thunk``, which may run several times for one start."""
    number = program.number_of(thunk)
    if not isinstance(bound, NativeCollective):
        return segment_of(number, PythonWait(bound))
    wait = Segment((SegmentRow.wait(number, bound),))
    if program.recorder is None:
        return wait
    course = program.recorder.course(thunk, bound)
    return joined((wait, *(stamping(number, stamps) for stamps in course)))
