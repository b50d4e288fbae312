"""Start a collective, and wait for it. A blocking collective is a start and its done in a row.

What differs between kinds is a plan, which gives each rank its own ``Collective``: see ``collective_plans.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collectives.communicator.native_collective import NativeCollective
from runtime.buffers.types import ArrayView
from runtime.codegen.llvm_segment import SegmentRow
from runtime.thunks.collective_plans import CollectivePlan
from runtime.thunks.segment import Action, PythonWait, Segment
from runtime.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind, uses


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
        if isinstance(bound, NativeCollective):
            return Segment((SegmentRow.start(program.number_of(self), bound),))
        return bound.start


@dataclass(frozen=True)
class CollectiveDoneThunk(Thunk):
    """Wait until the collective that thunk ``start`` began has written ``results``."""

    start: str
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        """Nothing of its own: the start's uses last until here."""
        return iter(())

    def prepare(self, program: LoadedProgram) -> Action | Segment:
        bound = program.bound_collectives[self.start]
        if isinstance(bound, NativeCollective):
            return Segment((SegmentRow.wait(program.number_of(self), bound),))
        return PythonWait(bound)
