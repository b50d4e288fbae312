"""SlotGraph: a module as slots and edges for propagation.

Tuples are transparent: a tuple's slots are its operands' slots, so a sharding set on one is seen by both. Control flow
shares slots between a loop's result, its body's and condition's parameter (partitioner/ops/control_flow.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.annotations import AnnotationReader, Constraint
from partitioner.axes import Axes
from partitioner.propagation import Edge, Slot
from partitioner.registry import propagator_of, rule_of
from partitioner.rule import OpShardingRule, RuleBuilder
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.shape import ArrayShape, Shape, leaves

Slots = tuple[Slot | None, ...]  # one per leaf; None for tokens

#: Ops that keep every dimension: a sharding follows the value through them before it crosses anything else.
_KEEPS_VALUE = frozenset(
    {
        Opcode.RESHAPE,
        Opcode.TRANSPOSE,
        Opcode.COPY,
        Opcode.CONVERT,
        Opcode.OPT_BARRIER,
        Opcode.REVERSE,
        Opcode.CUSTOM_CALL,
    }
)


@dataclass(frozen=True, slots=True)
class Flow:
    """Data flow of one op: what is manual on the operands is manual on the results, less ``removes``, plus ``adds``."""

    operands: tuple[Slot, ...]
    results: tuple[Slot, ...]
    adds: Axes = ()
    removes: Axes = ()


class SlotGraph:
    """Slots of every instruction that the entry reaches through control flow, and the edges between them."""

    def __init__(self, reader: AnnotationReader, region_axes: Axes) -> None:
        self.reader = reader
        #: Axes along which partition-id may differ.
        self.region_axes = region_axes
        self.axes = reader.axes
        self.edges: list[Edge] = []
        self.flows: list[Flow] = []
        self._slots: dict[HloInstruction, Slots] = {}

    # ---- reading
    def slots(self, instruction: HloInstruction) -> Slots:
        return self._slots[instruction]

    def instructions(self) -> tuple[HloInstruction, ...]:
        """All that have slots: those of the entry and of control flow, not those of reducers."""
        return tuple(self._slots)

    def slot(self, instruction: HloInstruction) -> Slot | None:
        (slot,) = self._slots[instruction]
        return slot

    # ---- building
    def add_computation(self, computation: HloComputation, parameters: Sequence[Slots]) -> Slots:
        """Take in a computation whose parameter i has the slots ``parameters[i]``; returns the root's slots."""
        for parameter, slots in zip(computation.parameters, parameters, strict=True):
            self._slots[parameter] = slots
        for instruction in computation.post_order():
            if instruction.opcode is not Opcode.PARAMETER:
                self._slots[instruction] = self._add(instruction)
        return self._slots[computation.root]

    def _add(self, instruction: HloInstruction) -> Slots:
        special = propagator_of(instruction)
        return self.add_by_rule(instruction) if special is None else special(self, instruction)

    def add_by_rule(self, instruction: HloInstruction, manual: Axes = ()) -> Slots:
        """New slots for the results, tied to the operands by the op's rule; ``manual``: axes along which the op itself
        makes its results differ.
        """
        results = self.new_slots(instruction.shape, instruction.name)
        self.flow([self._slots[operand] for operand in instruction.operands], results, manual)
        rule = rule_of(instruction)
        if rule is not None:
            self.connect_instruction(rule, instruction, results)
        self.constrain(results, self.reader.of_instruction(instruction), instruction.name)
        return results

    def connect_instruction(
        self, rule: OpShardingRule, instruction: HloInstruction, results: Slots
    ) -> None:
        operands = [self.slot(operand) for operand in instruction.operands]
        arrays = [slot for slot in operands if slot is not None]
        outputs = [slot for slot in results if slot is not None]
        if len(arrays) != len(rule.operands) or len(outputs) != len(rule.results):
            return
        self.connect(rule, arrays, outputs, instruction.name, level_of(instruction))

    def flow(
        self, operands: Sequence[Slots], results: Slots, adds: Axes = (), removes: Axes = ()
    ) -> None:
        sources = tuple(slot for slots in operands for slot in slots if slot is not None)
        targets = tuple(slot for slot in results if slot is not None)
        self.flows.append(Flow(sources, targets, adds, removes))

    def connect(
        self,
        rule: OpShardingRule,
        operands: Sequence[Slot],
        results: Sequence[Slot],
        name: str,
        level: int,
    ) -> None:
        self.edges.append(Edge.connect(rule, operands, results, name, level))

    def connect_same(self, a: Slot | None, b: Slot | None, name: str) -> None:
        """Both hold one value: every dimension passes through."""
        if a is not None and b is not None and a is not b:
            self.flow([(a,)], (b,))
            self.connect(identity_rule(a.shape), [a], [b], name, 0)

    def new_slots(self, shape: Shape, name: str) -> Slots:
        return tuple(
            Slot.for_shape(leaf, name) if isinstance(leaf, ArrayShape) else None
            for _, leaf in leaves(shape)
        )

    def constrain(
        self, slots: Slots, constraints: Sequence[Constraint | None], because: str
    ) -> None:
        for slot, constraint in zip(slots, constraints, strict=True):
            if slot is not None and constraint is not None:
                slot.fix(constraint.dims, constraint.open, because)


def identity_rule(shape: ArrayShape) -> OpShardingRule:
    rule = RuleBuilder([shape.dims], [shape.dims])
    for dim, size in enumerate(shape.dims):
        rule.factor(size, operands={0: dim}, results={0: dim})
    return rule.build()


def level_of(instruction: HloInstruction) -> int:
    """0 for ops through which a value keeps its dimensions (elementwise and the like), 1 for the rest."""
    if instruction.opcode in _KEEPS_VALUE:
        return 0
    if not isinstance(instruction.shape, ArrayShape) or not instruction.operands:
        return 1
    same = all(
        isinstance(operand.shape, ArrayShape) and operand.dims in ((), instruction.dims)
        for operand in instruction.operands
    )
    return 0 if same else 1


def spread_manual(graph: SlotGraph) -> None:
    """Mark, on every slot, the axes along which its value differs because of a manual region; they may not shard it.

    Forward data flow from the region's entries (and partition-id) to its exits.
    """
    changed = True
    while changed:
        changed = False
        for flow in graph.flows:
            incoming = {a for slot in flow.operands for a in slot.forbidden}
            outgoing = (incoming - set(flow.removes)) | set(flow.adds)
            for slot in flow.results:
                wanted = tuple(sorted(outgoing | set(slot.forbidden)))
                if wanted != slot.forbidden:
                    slot.forbidden = wanted
                    changed = True
