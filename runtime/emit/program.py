"""Emission of the thunk sequence of a program whose buffers are assigned."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field

from runtime.buffers.assign import AssignedProgram
from runtime.buffers.colocation import Copy
from runtime.buffers.program import (
    Region,
    ScheduledConditional,
    ScheduledCopy,
    ScheduledDone,
    ScheduledOp,
    ScheduledWhile,
    Value,
    ValueView,
)
from runtime.buffers.types import ArrayView
from runtime.lowering import LOWERINGS, OpArrays
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


def emit_program(assigned: AssignedProgram) -> ThunkSequence:
    """Return the thunks of the entry computation in schedule order, including the copies that colocation added."""
    emitter = _Emitter(assigned)
    for copy in assigned.copies:
        emitter.copies[copy.position].append(copy)
    return emitter.region(assigned.program.entry)


@dataclass
class _Emitter:
    """Emitter of thunks for the regions of a program.

    ``copies`` maps a schedule position to the copies to emit there.
    """

    assigned: AssignedProgram
    copies: dict[int, list[Copy]] = field(default_factory=lambda: defaultdict(list))

    def region(self, region: Region) -> ThunkSequence:
        """Return the thunks of ``region`` in schedule order."""
        thunks: list[Thunk] = []
        for op in region.ops:
            thunks.extend(self.op(op))
        thunks.extend(self.copies_at(region.end, region.name))
        return ThunkSequence(region.name, tuple(thunks))

    def copies_at(self, position: int, name: str) -> list[Thunk]:
        """Return the copies at ``position``. ``name`` is the name of a copy that belongs to no instruction."""
        return [
            CopyThunk(name if copy.op is None else copy.op.instruction.name, *self.ends(copy))
            for copy in self.copies[position]
        ]

    def ends(self, copy: Copy) -> tuple[ArrayView, ArrayView]:
        """Return the source and the target of ``copy``. The target is dense."""
        source = self.assigned.locate(copy.source)
        if isinstance(copy.target, Value):
            target = self.assigned.slices[copy.target]
        else:
            target = self.assigned.outputs[copy.target]
        shape = ArrayShape(source.view.element_type, source.view.dims)
        return source, ArrayView(target, StridedView.dense(shape))

    def array_of(self, value: Value) -> ArrayView:
        """Return the array in memory that holds ``value``."""
        return self.assigned.locate(ValueView(value, value.view))

    def op(self, op: ScheduledOp) -> list[Thunk]:
        """Return the thunks of ``op``, with the copies that precede a loop."""
        name = op.instruction.name
        operands = tuple(map(self.assigned.locate, op.operands))
        if isinstance(op, ScheduledWhile):
            return [*self.copies_at(op.position, name), self.loop(op)]
        if isinstance(op, ScheduledConditional):
            branches = tuple(self.region(branch.region) for branch in op.branches)
            results = tuple(map(self.array_of, op.results))
            return [ConditionalThunk(name, operands[0], branches, results)]
        if isinstance(op, ScheduledCopy):
            return [CopyThunk(name, operands[0], self.array_of(op.results[0]))]
        if isinstance(op, ScheduledDone):
            count = len(op.start.operands)
            return [
                CollectiveDoneThunk(
                    name, op.start.instruction.name, operands[:count], operands[count:]
                )
            ]
        arrays = OpArrays(
            operands,
            tuple(map(self.array_of, op.results)),
            tuple(map(self.array_of, op.scratch)),
        )
        emit = LOWERINGS[op.instruction.opcode].emit
        return [emit(op.instruction, arrays, self.assigned.program.device)]

    def loop(self, op: ScheduledWhile) -> Thunk:
        """Return the thunk of a while loop."""
        return WhileThunk(
            op.instruction.name,
            self.region(op.condition),
            self.region(op.body),
            self.assigned.locate(op.predicate),
            tuple((c.leaf, self.array_of(c.value)) for c in op.carried),
            trip_count(op.instruction),
        )
