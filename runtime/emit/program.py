"""From an assigned program to its thunk sequence."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field

from runtime.buffers.assign import AssignedProgram
from runtime.buffers.colocation import Copy
from runtime.buffers.program import (
    ScheduledConditional,
    ScheduledCopy,
    ScheduledDone,
    Region,
    ScheduledOp,
    Value,
    ValueView,
    ScheduledWhile,
)
from runtime.buffers.types import ArrayView
from runtime.lowering import LOWERINGS, Device, StepArrays
from runtime.program.strides import StridedView
from runtime.program.thunks import (
    CollectiveDoneThunk,
    ConditionalThunk,
    CopyThunk,
    Thunk,
    ThunkSequence,
    WhileThunk,
)
from spmd.analysis.trip_count import trip_count
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape


def emit_program(assigned: AssignedProgram, device: Device) -> ThunkSequence:
    """Return the thunks in schedule order, with the copies that colocation has added."""
    emitter = _Emitter(assigned, device)
    for copy in assigned.copies:
        emitter.copies[copy.position].append(copy)
    return emitter.region(assigned.program.entry)


@dataclass
class _Emitter:
    assigned: AssignedProgram
    device: Device
    copies: dict[int, list[Copy]] = field(default_factory=lambda: defaultdict(list))

    def region(self, region: Region) -> ThunkSequence:
        thunks: list[Thunk] = []
        for step in region.steps:
            thunks.extend(self.step(step))
        thunks.extend(self.copies_at(region.end, region.name))
        return ThunkSequence(region.name, tuple(thunks))

    def copies_at(self, position: int, name: str) -> list[Thunk]:
        return [
            CopyThunk(name if copy.step is None else copy.step.instruction.name, *self.ends(copy))
            for copy in self.copies[position]
        ]

    def ends(self, copy: Copy) -> tuple[ArrayView, ArrayView]:
        source = self.assigned.locate(copy.source)
        if isinstance(copy.target, Value):
            target = self.assigned.slices[copy.target]
        else:
            target = self.assigned.outputs[copy.target]
        shape = ArrayShape(source.view.element_type, source.view.dims)
        return source, ArrayView(target, StridedView.dense(shape))

    def array_of(self, value: Value) -> ArrayView:
        return self.assigned.locate(ValueView(value, value.view))

    def step(self, step: ScheduledOp) -> list[Thunk]:
        name = step.instruction.name
        operands = tuple(map(self.assigned.locate, step.operands))
        if isinstance(step, ScheduledWhile):
            return [*self.copies_at(step.position, name), self.loop(step)]
        if isinstance(step, ScheduledConditional):
            branches = tuple(self.region(branch.region) for branch in step.branches)
            results = tuple(map(self.array_of, step.results))
            return [ConditionalThunk(name, operands[0], branches, results)]
        if isinstance(step, ScheduledCopy):
            return [CopyThunk(name, operands[0], self.array_of(step.results[0]))]
        if isinstance(step, ScheduledDone):
            count = len(step.start.operands)
            return [
                CollectiveDoneThunk(
                    name, step.start.instruction.name, operands[:count], operands[count:]
                )
            ]
        arrays = StepArrays(
            operands,
            tuple(map(self.array_of, step.results)),
            tuple(map(self.array_of, step.scratch)),
        )
        return [LOWERINGS[step.instruction.opcode].emit(step.instruction, arrays, self.device)]

    def loop(self, step: ScheduledWhile) -> Thunk:
        return WhileThunk(
            step.instruction.name,
            self.region(step.condition),
            self.region(step.body),
            self.assigned.locate(step.predicate),
            tuple((c.leaf, self.array_of(c.value)) for c in step.carried),
            trip_count(step.instruction),
        )
