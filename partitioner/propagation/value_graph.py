"""SlotGraph: a module as slots and edges for propagation.

Tuples are transparent: a tuple's slots are its operands' slots, so a sharding set on one is seen by both. Control flow
shares slots between a loop's result, its body's and condition's parameter (partitioner/ops/control_flow.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partitioner.annotations.reader import AnnotationReader, Constraint
from partitioner.devices.axes import Axes
from partitioner.propagation.driver import Edge, Slot
from partitioner.propagation.op_priority import Direction, OpPriority
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, identity_rule
from partitioner.propagation.sharding_groups import ShardingGroups
from partitioner.registry import propagator_of, rule_of
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.shape import ArrayShape, Shape, leaves

Slots = tuple[Slot | None, ...]  # one per leaf; None for tokens

#: Ops that keep every dimension: a sharding follows the value through them before it crosses other ops.
_KEEPS_VALUE = frozenset(
    {
        Opcode.RESHAPE,
        Opcode.TRANSPOSE,
        Opcode.COPY,
        Opcode.CONVERT,
        Opcode.OPT_BARRIER,
        Opcode.REVERSE,
    }
)


#: Ops through which a sharding goes to the result before it comes back.
_SLICES = frozenset({Opcode.DYNAMIC_SLICE, Opcode.DYNAMIC_UPDATE_SLICE})


@dataclass(frozen=True, slots=True)
class Flow:
    """Data flow of one op: the manual axes of the results are those of the operands, less ``removes``, plus
    ``adds``.
    """

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
        self.groups = ShardingGroups()
        self._slots: dict[HloInstruction, Slots] = {}

    # ---- reading
    def slots(self, instruction: HloInstruction) -> Slots:
        return self._slots[instruction]

    def instructions(self) -> tuple[HloInstruction, ...]:
        """Return the instructions that have slots: those of the entry and of control flow, not those of reducers."""
        return tuple(self._slots)

    def array_slots(self) -> Iterator[Slot]:
        """Yield every slot of an instruction; shared slots occur several times."""
        return (slot for slots in self._slots.values() for slot in slots if slot is not None)

    def slot(self, instruction: HloInstruction) -> Slot | None:
        (slot,) = self._slots[instruction]
        return slot

    # ---- building
    def add_computation(self, computation: HloComputation, parameters: Sequence[Slots]) -> Slots:
        """Add a computation whose parameter i has the slots ``parameters[i]``. Returns the root's slots."""
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
        """Make slots for the results and connect them to the operands by the op's rule. ``manual``: axes along which
        the op itself makes its results differ.
        """
        results = self.new_slots(instruction.shape, instruction.name)
        self.flow([self._slots[operand] for operand in instruction.operands], results, manual)
        rule = (
            rule_of(instruction) if self.axes.sizes else None
        )  # one device has nothing to propagate
        if rule is not None:
            self.connect_instruction(rule, instruction, results)
        self.annotate(instruction, results)
        return results

    def connect_instruction(
        self, rule: OpShardingRule, instruction: HloInstruction, results: Slots
    ) -> None:
        """Connect an instruction by its rule, unless an operand is a tuple or a token, which no rule describes."""
        operands = [slot for operand in instruction.operands for slot in self._slots[operand]]
        arrays = [slot for slot in operands if slot is not None]
        outputs = [slot for slot in results if slot is not None]
        if any(not isinstance(operand.shape, ArrayShape) for operand in instruction.operands):
            return
        if len(arrays) != len(rule.operands) or len(outputs) != len(rule.results):
            return
        self.connect(rule, arrays, outputs, instruction.name, op_priority(instruction, rule))

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
        priority: OpPriority = OpPriority.KEEPS_VALUE,
        allowed: Direction = Direction.BOTH,
    ) -> None:
        self.edges.append(Edge.connect(rule, operands, results, name, priority, allowed))

    def connect_same(
        self, a: Slot | None, b: Slot | None, name: str, allowed: Direction = Direction.BOTH
    ) -> None:
        """Connect two slots of one value: every dimension passes through."""
        if a is not None and b is not None and a is not b:
            self.flow([(a,)], (b,))
            self.connect(identity_rule(a.shape), [a], [b], name, allowed=allowed)

    def new_slots(self, shape: Shape, name: str) -> Slots:
        return tuple(
            Slot.for_shape(leaf, name) if isinstance(leaf, ArrayShape) else None
            for _, leaf in leaves(shape)
        )

    def annotate(self, instruction: HloInstruction, slots: Slots) -> None:
        """Bind an instruction's slots to its annotation, and join them to its sharding groups."""
        self.constrain(slots, self.reader.of_instruction(instruction), instruction.name)
        for slot, group in zip(slots, self.reader.groups_of(instruction), strict=True):
            if slot is not None and group:
                self.join_group(group, slot, aligned=group.startswith("shard_as"))

    def join_group(self, name: str, slot: Slot, *, aligned: bool) -> None:
        self.edges.append(self.groups.join(name, slot, aligned=aligned))

    def constrain(
        self, slots: Slots, constraints: Sequence[Constraint | None], because: str
    ) -> None:
        for slot, constraint in zip(slots, constraints, strict=True):
            if slot is not None and constraint is not None:
                slot.fix(
                    constraint.dims,
                    constraint.open,
                    because,
                    priorities=constraint.priorities,
                    excluded=constraint.excluded,
                )


def op_priority(instruction: HloInstruction, rule: OpShardingRule) -> OpPriority:
    """Return the op priority of ``instruction``: the levels and directions of its factors (see op_priority.py)."""
    if instruction.opcode in _SLICES:
        return OpPriority.SLICES
    if instruction.opcode is Opcode.BROADCAST:
        return OpPriority.BROADCASTS
    keeps = instruction.opcode in _KEEPS_VALUE or _is_elementwise(rule)
    return OpPriority.KEEPS_VALUE if keeps else OpPriority.ORDINARY


def _is_elementwise(rule: OpShardingRule) -> bool:
    """Return whether all tensors except scalars have the same mapping and all factors pass through."""
    mappings = {mapping for mapping in (*rule.operands, *rule.results) if mapping}
    return len(mappings) == 1 and all(f.kind is FactorKind.PASS_THROUGH for f in rule.factors)


def spread_manual(graph: SlotGraph) -> None:
    """Mark, on every slot, the axes along which its value differs because of a manual region; they may not shard it.

    The analysis is forward data flow from the region's entries (and partition-id) to its exits.
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
