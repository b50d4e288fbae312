"""ValueGraph: a module as value shardings and edges for propagation.

A tuple has the ValueSharding objects of its operands, so a change of one is a change of both. A loop's result and the
parameters of its body and condition have the same objects, too (partitioner/ops/control_flow.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioner.annotations.reader import AnnotationReader, Constraint
from partitioner.devices.axes import Axes
from partitioner.propagation.driver import Edge, ValueSharding
from partitioner.propagation.op_priority import Direction, OpPriority
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, identity_rule
from partitioner.propagation.sharding_groups import ShardingGroups
from partitioner.registry import propagator_of, rule_of
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, Shape, leaves

ValueShardings = tuple[ValueSharding | None, ...]  # one per leaf; None for tokens

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

    operands: tuple[ValueSharding, ...]
    results: tuple[ValueSharding, ...]
    adds: Axes = ()
    removes: Axes = ()


class ValueGraph:
    """Shardings of every instruction that the entry reaches through control flow, and the edges between them."""

    def __init__(self, reader: AnnotationReader, region_axes: Axes) -> None:
        self.reader = reader
        #: Axes along which partition-id may differ.
        self.region_axes = region_axes
        self.axes = reader.axes
        self.edges: list[Edge] = []
        self.flows: list[Flow] = []
        self.groups = ShardingGroups()
        self._shardings: dict[HloInstruction, ValueShardings] = {}

    # ---- reading
    def shardings(self, instruction: HloInstruction) -> ValueShardings:
        return self._shardings[instruction]

    def instructions(self) -> tuple[HloInstruction, ...]:
        """Return the instructions that have shardings: those of the entry and of control flow, but not of reducers."""
        return tuple(self._shardings)

    def array_shardings(self) -> Iterator[ValueSharding]:
        """Yield every sharding of an instruction; shared ones occur several times."""
        return (
            sharding
            for shardings in self._shardings.values()
            for sharding in shardings
            if sharding is not None
        )

    def sharding(self, instruction: HloInstruction) -> ValueSharding | None:
        (sharding,) = self._shardings[instruction]
        return sharding

    # ---- building
    def add_computation(
        self, computation: HloComputation, parameters: Sequence[ValueShardings]
    ) -> ValueShardings:
        """Add a computation whose parameter i has the shardings ``parameters[i]``. Returns the root's shardings."""
        for parameter, shardings in zip(computation.parameters, parameters, strict=True):
            self._shardings[parameter] = shardings
        for instruction in computation.post_order():
            if instruction.opcode is not Opcode.PARAMETER:
                self._shardings[instruction] = self._add(instruction)
        return self._shardings[computation.root]

    def _add(self, instruction: HloInstruction) -> ValueShardings:
        special = propagator_of(instruction)
        return self.add_by_rule(instruction) if special is None else special(self, instruction)

    def add_by_rule(self, instruction: HloInstruction, manual: Axes = ()) -> ValueShardings:
        """Make shardings for the results and connect them to the operands by the op's rule. ``manual``: axes along
        which the op itself makes its results differ.
        """
        results = self.new_shardings(instruction.shape, instruction.name)
        self.flow([self._shardings[operand] for operand in instruction.operands], results, manual)
        rule = (
            rule_of(instruction) if self.axes.sizes else None
        )  # one device has nothing to propagate
        if rule is not None:
            self.connect_instruction(rule, instruction, results)
        self.annotate(instruction, results)
        return results

    def connect_instruction(
        self, rule: OpShardingRule, instruction: HloInstruction, results: ValueShardings
    ) -> None:
        """Connect an instruction by its rule, unless an operand is a tuple or a token, which no rule describes."""
        operands = [
            sharding for operand in instruction.operands for sharding in self._shardings[operand]
        ]
        arrays = [sharding for sharding in operands if sharding is not None]
        outputs = [sharding for sharding in results if sharding is not None]
        if any(not isinstance(operand.shape, ArrayShape) for operand in instruction.operands):
            return
        if len(arrays) != len(rule.operands) or len(outputs) != len(rule.results):
            return
        self.connect(rule, arrays, outputs, instruction.name, op_priority(instruction, rule))

    def flow(
        self,
        operands: Sequence[ValueShardings],
        results: ValueShardings,
        adds: Axes = (),
        removes: Axes = (),
    ) -> None:
        sources = tuple(
            sharding for shardings in operands for sharding in shardings if sharding is not None
        )
        targets = tuple(sharding for sharding in results if sharding is not None)
        self.flows.append(Flow(sources, targets, adds, removes))

    def connect(
        self,
        rule: OpShardingRule,
        operands: Sequence[ValueSharding],
        results: Sequence[ValueSharding],
        name: str,
        priority: OpPriority = OpPriority.KEEPS_VALUE,
        allowed: Direction = Direction.BOTH,
    ) -> None:
        self.edges.append(Edge.connect(rule, operands, results, name, priority, allowed))

    def connect_same(
        self,
        a: ValueSharding | None,
        b: ValueSharding | None,
        name: str,
        allowed: Direction = Direction.BOTH,
    ) -> None:
        """Connect two shardings of one value: every dimension passes through."""
        if a is not None and b is not None and a is not b:
            self.flow([(a,)], (b,))
            self.connect(identity_rule(a.shape), [a], [b], name, allowed=allowed)

    def new_shardings(self, shape: Shape, name: str) -> ValueShardings:
        return tuple(
            ValueSharding.for_shape(leaf, name) if isinstance(leaf, ArrayShape) else None
            for _, leaf in leaves(shape)
        )

    def annotate(self, instruction: HloInstruction, shardings: ValueShardings) -> None:
        """Bind an instruction's shardings to its annotation, and join them to its sharding groups."""
        self.constrain(shardings, self.reader.of_instruction(instruction), instruction.name)
        for sharding, group in zip(shardings, self.reader.groups_of(instruction), strict=True):
            if sharding is not None and group:
                self.join_group(group, sharding, aligned=group.startswith("shard_as"))

    def join_group(self, name: str, sharding: ValueSharding, *, aligned: bool) -> None:
        self.edges.append(self.groups.join(name, sharding, aligned=aligned))

    def constrain(
        self, shardings: ValueShardings, constraints: Sequence[Constraint | None], because: str
    ) -> None:
        for sharding, constraint in zip(shardings, constraints, strict=True):
            if sharding is not None and constraint is not None:
                sharding.fix(
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


def spread_manual(graph: ValueGraph) -> None:
    """Mark on every sharding the axes along which the value differs because of a manual region; they may not split it.

    The analysis is forward data flow from the region's entries (and partition-id) to its exits.
    """
    changed = True
    while changed:
        changed = False
        for flow in graph.flows:
            incoming = {a for sharding in flow.operands for a in sharding.forbidden}
            outgoing = (incoming - set(flow.removes)) | set(flow.adds)
            for sharding in flow.results:
                wanted = tuple(sorted(outgoing | set(sharding.forbidden)))
                if wanted != sharding.forbidden:
                    sharding.forbidden = wanted
                    changed = True
