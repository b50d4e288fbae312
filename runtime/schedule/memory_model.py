"""Coarse memory model of an instruction order, which is computed in linear time. The scheduler compares orders by it.

Each instruction has one buffer, even if its result has several leaves. Views cost nothing and keep their source alive.
A result that may overwrite an operand of its size at the operand's last read costs nothing either. Buffer assignment
computes the exact figure later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import TypeAlias

from runtime.lowering import LOWERINGS
from runtime.schedule.op_facts import OpFacts
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.opcode_roles import DONES, PAIRED_STARTS
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ParameterAttrs, TupleIndexAttrs
from spmd.shape import HOST_MEMORY, ArrayShape, ShapeIndex, subshape

_FREE = frozenset(
    {
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.OPT_BARRIER,
        Opcode.AFTER_ALL,
        Opcode.CONSTANT,
        Opcode.IOTA,
        Opcode.PARAMETER,
    }
)


#: (parameter number, tuple index) of an input array. The index is () for a parameter that is an array.
InputIndex: TypeAlias = tuple[int, ShapeIndex]


@dataclass
class MemoryModel:
    """Memory model of one computation, for any order of its instructions.

    inner[i]: bytes that the computations called by instruction i need while i runs.
    facts: facts of buffer assignment, if they are known.
    returns: for a result leaf (index into the root tuple), the input in whose buffer the leaf should be written, as for
        loop state and donated parameters.
    sources[i]: the instructions whose buffers hold the result of i: i itself if it writes a buffer or is an input
        array, others if i is a view.
    size[i]: bytes that i writes. reads[i]: sources that i reads. readers[i]: number of instructions that read i.
    overwrites[i]: the source that the result of i should overwrite, according to ``returns``.
    """

    computation: HloComputation
    inner: dict[HloInstruction, int]
    returns: dict[ShapeIndex, InputIndex] = field(default_factory=dict)
    facts: OpFacts = field(default_factory=OpFacts)
    sources: dict[HloInstruction, tuple[HloInstruction, ...]] = field(default_factory=dict)
    size: dict[HloInstruction, int] = field(default_factory=dict)
    readers: dict[HloInstruction, int] = field(default_factory=dict)
    reads: dict[HloInstruction, tuple[HloInstruction, ...]] = field(default_factory=dict)
    overwrites: dict[HloInstruction, HloInstruction] = field(default_factory=dict)
    _inputs: dict[InputIndex, HloInstruction] = field(default_factory=dict)
    _over: dict[HloInstruction, tuple[HloInstruction, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rebuild()

    def rebuild(self, without: Collection[HloInstruction] = ()) -> None:
        """Rebuild the model from the present computation, without the unread instructions ``without``."""
        for table in (
            self.sources,
            self.size,
            self.readers,
            self.reads,
            self.overwrites,
            self._over,
        ):
            table.clear()
        self._inputs.clear()
        out = dict.fromkeys(without)
        for instruction in self.computation.post_order():
            if instruction not in out:
                self.add(instruction)
        root = self.computation.root
        for source in self.sources[root]:
            self.readers[source] = self.readers.get(source, 0) + 1
        for index, input_index in self.returns.items():
            self._add_return(index, input_index)

    def add(self, instruction: HloInstruction) -> None:
        """Add an instruction to the model. Its operands must have been added before."""
        input_index = _input_index_of(instruction)
        if input_index is not None:
            self.sources[instruction] = (self._inputs.setdefault(input_index, instruction),)
            self.size[instruction], self.reads[instruction] = 0, ()
            return
        shown = tuple(dict.fromkeys(s for o in _shown(instruction) for s in self.sources[o]))
        if instruction.opcode in DONES:
            # The operands are in use from start to done.
            self.sources[instruction], self.size[instruction] = shown, 0
            begun = (*shown, *self.reads[instruction.operand(0)])
            self._read(instruction, tuple(dict.fromkeys(begun)))
            return
        if instruction.opcode in _FREE or self.is_view(instruction):
            self.sources[instruction] = shown
            self.size[instruction], self.reads[instruction] = 0, ()
            return
        self.sources[instruction] = (instruction,)
        # A loop starts in the memory of its initial values.
        is_loop = instruction.opcode is Opcode.WHILE
        self.size[instruction] = 0 if is_loop else _written_bytes(instruction)
        if is_loop:
            self.sources[instruction] = (instruction, *shown)
        self._read(instruction, shown)

    def drop(self, instruction: HloInstruction) -> None:
        """Remove an instruction without readers from the model."""
        self._unread(instruction)
        del self.sources[instruction], self.size[instruction], self.reads[instruction]
        self.readers.pop(instruction, None)

    def reread(self, instruction: HloInstruction) -> None:
        """Update the model after a change of the operands of ``instruction``.

        The done of an asynchronous operation, and all users if the sources of the instruction change, are updated, too.
        """
        shown = self.sources[instruction]
        self._unread(instruction)
        self.add(instruction)
        for user in instruction.users:
            if user.opcode in DONES or self.sources[instruction] != shown:
                self.reread(user)

    def _unread(self, instruction: HloInstruction) -> None:
        self._over.pop(instruction, None)
        for source in self.reads[instruction]:
            self.readers[source] -= 1

    def _read(self, instruction: HloInstruction, sources: tuple[HloInstruction, ...]) -> None:
        self.reads[instruction] = sources
        for source in sources:
            self.readers[source] = self.readers.get(source, 0) + 1

    def _add_return(self, index: ShapeIndex, input_index: InputIndex) -> None:
        result = self.computation.root
        for i in index:
            if result.opcode is not Opcode.TUPLE:
                return
            result = result.operand(i)
        written = self.sources[result]
        target = self._inputs.get(input_index)
        if target is not None and len(written) == 1 and self.size[written[0]]:
            self.overwrites[written[0]] = target

    def waits(self) -> dict[HloInstruction, list[HloInstruction]]:
        """Return, for instructions that should overwrite an input, the readers of the input, which should precede them.

        Only instructions that the root alone uses wait, and they do not wait for one another, so there are no cycles.
        """
        root = self.computation.root
        last = {
            result: target
            for result, target in self.overwrites.items()
            if not result.control_successors and all(user is root for user in result.users)
        }
        waiting: dict[HloInstruction, list[HloInstruction]] = {}
        by_target = {target: result for result, target in last.items()}
        for reader, sources in self.reads.items():
            if reader in last:
                continue
            for source in sources:
                if source in by_target:
                    waiting.setdefault(by_target[source], []).append(reader)
        return waiting

    def may_replace(self, instruction: HloInstruction) -> tuple[HloInstruction, ...]:
        """Return the operands that the result of ``instruction`` may overwrite if no later instruction reads them."""
        if instruction not in self._over:
            in_place = self.facts.in_place
            if instruction not in in_place:
                lowering = LOWERINGS.get(instruction.opcode)
                pairs = lowering.in_place(instruction) if lowering is not None else ()
                in_place[instruction] = tuple(dict.fromkeys(operand for _, operand in pairs))
            operands = (
                instruction.operand(number)
                for number in in_place[instruction]
                if number < instruction.num_operands
            )
            size = self.size[instruction]
            self._over[instruction] = tuple(s for s in operands if self.size[s] == size)
        return self._over[instruction]

    def is_view(self, instruction: HloInstruction) -> bool:
        """Return whether the result is a view of its operand's memory."""
        return self.facts.is_view(instruction)

    def while_running(self, instruction: HloInstruction) -> int:
        """Return the bytes that ``instruction`` needs while it runs, in addition to its operands and result.

        They are those of called computations, scratch, and copies of operands in another layout.
        """
        return self.inner.get(instruction, 0) + self.facts.extra.get(instruction, 0)

    def peak(self, order: Sequence[HloInstruction]) -> int:
        """Return the largest number of live bytes over the order, without inputs and constants."""
        return max(self.needs(order), default=0)

    def needs(self, order: Sequence[HloInstruction]) -> list[int]:
        """Return the bytes that are live while each instruction runs, without inputs and constants."""
        left, sizes = dict(self.readers), self.size
        inner, extra, overwrites = self.inner, self.facts.extra, self.overwrites
        live = 0
        found = []
        for instruction in order:
            size, freed = sizes[instruction], 0
            for source in self.reads[instruction]:
                left[source] -= 1
                if not left[source]:
                    freed += sizes[source]
            if size and instruction in overwrites and not left.get(overwrites[instruction]):
                size = 0
            needed = live + inner.get(instruction, 0) + extra.get(instruction, 0)
            if size and not any(left[s] == 0 for s in self.may_replace(instruction)):
                needed += size
            found.append(needed)
            live -= freed
            if size and left.get(instruction):
                live += size
        return found


def _written_bytes(instruction: HloInstruction) -> int:
    """Return the bytes of device memory that ``instruction`` writes; for a start of a pair, those of its result."""
    if instruction.opcode in PAIRED_STARTS:
        return subshape(instruction.shape, (1,)).byte_size
    shape = instruction.shape
    if isinstance(shape, ArrayShape) and shape.memory_space == HOST_MEMORY:
        return 0
    return shape.byte_size


def _shown(instruction: HloInstruction) -> tuple[HloInstruction, ...]:
    """Return the operands whose buffers a view may refer to. A get-tuple-element of a tuple refers to one operand."""
    if instruction.opcode is not Opcode.GET_TUPLE_ELEMENT:
        return instruction.operands
    index = instruction.attrs_as(TupleIndexAttrs).index
    source = instruction.operand(0)
    while source.opcode is Opcode.OPT_BARRIER:
        source = source.operand(0)
    return (source.operand(index),) if source.opcode is Opcode.TUPLE else (source,)


def _input_index_of(instruction: HloInstruction) -> InputIndex | None:
    """Return the index of the input array that ``instruction`` is; None if it is no input array."""
    if instruction.opcode is Opcode.PARAMETER and isinstance(instruction.shape, ArrayShape):
        return instruction.attrs_as(ParameterAttrs).number, ()
    if instruction.opcode is Opcode.GET_TUPLE_ELEMENT:
        operand = instruction.operand(0)
        if operand.opcode is Opcode.PARAMETER and isinstance(instruction.shape, ArrayShape):
            index = instruction.attrs_as(TupleIndexAttrs).index
            return operand.attrs_as(ParameterAttrs).number, (index,)
    return None
