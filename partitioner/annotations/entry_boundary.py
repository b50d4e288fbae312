"""Bindings of the module's parameters and outputs, by annotations and by the header's flags.

If propagation may not choose the sharding of a parameter or output, its annotation binds it; without an annotation it
is replicated. Otherwise it takes the sharding that propagation finds, if that divides it evenly (see
propagation_flags.py).
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.annotations.reader import SDY_SHARDING, Constraint
from partitioner.devices.axes import Axes
from partitioner.propagation.driver import Slot
from partitioner.propagation.propagation_flags import Allowed, output_flags, parameter_flags
from partitioner.propagation.value_graph import SlotGraph, Slots
from spmd.errors import ShardingError, UnsupportedError
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.shape import leaves
from spmd.sharding import HloSharding, SubgroupType


class EntryBinding:
    """Binding of the slots of one module's parameters and outputs.

    ``outputs``: the slot that each leaf of the root leaves in. ``foreign_*``: shardings that the module's axes cannot
    express (inexpressible_shardings.py). ``partial_*``: axes over which a parameter's slot, or the output with that
    index, is a partial sum at the entry boundary (partial_sums.py).
    """

    def __init__(self, module: HloModule, graph: SlotGraph) -> None:
        self.module = module
        self.graph = graph
        self.outputs: Slots = ()
        self.foreign_inputs: dict[HloInstruction, HloSharding] = {}
        self.foreign_outputs: list[HloSharding | None] = []
        self.partial_inputs: dict[Slot, Axes] = {}
        self.partial_outputs: list[Axes] = []
        #: Slots that propagation may shard, but only evenly.
        self._even: list[Slot] = []

    # ---- parameters
    def parameters(self) -> list[Slots]:
        """Return the slots of the entry's parameters, bound."""
        flags = parameter_flags(self.module)
        return [
            self._parameter(parameter, allowed)
            for parameter, allowed in zip(self.module.entry.parameters, flags, strict=True)
        ]

    def _parameter(self, parameter: HloInstruction, flags: tuple[Allowed, ...]) -> Slots:
        slots = self.graph.new_slots(parameter.shape, parameter.name)
        constraints = self.graph.reader.of_instruction(parameter)
        groups = self.graph.reader.groups_of(parameter)
        for slot, constraint, allowed, group in zip(slots, constraints, flags, groups, strict=True):
            if slot is None:
                continue
            if constraint is not None and constraint.foreign is not None:
                self.foreign_inputs[parameter] = constraint.foreign
            self._bind_parameter(slot, constraint, allowed)
            if group:
                self.graph.join_group(group, slot, aligned=group.startswith("shard_as"))
        return slots

    def _bind_parameter(self, slot: Slot, constraint: Constraint | None, allowed: Allowed) -> None:
        title = f"parameter {slot.name}"
        constraint = _checked(constraint, title)
        if constraint is not None and constraint.partial:
            self.partial_inputs[slot] = constraint.partial
        if allowed is Allowed.YES:
            if constraint is not None:
                self.graph.constrain((slot,), (constraint,), title)
            self._even.append(slot)
            return
        bound = constraint or Constraint.replicated(slot.shape.rank)
        closed = replace(bound, open=(False,) * slot.shape.rank)
        self.graph.constrain((slot,), (closed,), title)

    # ---- outputs
    def bind_outputs(self, roots: Slots) -> None:
        """Bind each output to the root's sharding, unless a Shardy result sharding already binds it."""
        root = self.module.entry.root
        constraints = self.graph.reader.of_instruction(root)
        values = root.operands if root.opcode is Opcode.TUPLE else (root,)
        producers = [value for value in values for _ in leaves(value.shape)]
        flags = output_flags(self.module)
        outputs: list[Slot | None] = []
        for producer, slot, constraint, allowed in zip(
            producers, roots, constraints, flags, strict=True
        ):
            own = self.graph.reader.of_instruction(producer)[0]
            is_result = producer.annotations.frontend(SDY_SHARDING) is not None
            binding = own if is_result or constraint is None else constraint
            binding = _checked(binding, f"output {root.name}")
            self.foreign_outputs.append(_foreign_of(binding))
            self.partial_outputs.append(binding.partial if binding is not None else ())
            if not is_result:
                constraint = binding
            outputs.append(
                None
                if slot is None
                else self._output(slot, None if is_result else constraint, allowed, is_result)
            )
        self.outputs = tuple(outputs)

    def _output(
        self, slot: Slot, constraint: Constraint | None, allowed: Allowed, is_bound: bool
    ) -> Slot:
        root = self.module.entry.root
        if constraint is None and allowed is Allowed.NO and not is_bound:
            constraint = Constraint.replicated(slot.shape.rank)
        if constraint is None and allowed is not Allowed.YES:
            return slot
        output = Slot.for_shape(slot.shape, f"output of {root.name}")
        if constraint is not None:
            self.graph.constrain((output,), (constraint,), f"root {root.name}")
        else:
            self._even.append(output)
        self.graph.connect_same(slot, output, root.name)
        return output

    # ---- after propagation
    def settle(self) -> None:
        """Replicate the slots that propagation split unevenly: the host holds tiles of equal size."""
        for slot in self._even:
            shards = [self.graph.axes.count(held) for held in slot.dims]
            if any(size % n for size, n in zip(slot.shape.dims, shards, strict=True)):
                slot.fix(((),) * slot.shape.rank, (False,) * slot.shape.rank, "uneven tiles")


def _foreign_of(constraint: Constraint | None) -> HloSharding | None:
    return constraint.foreign if constraint is not None else None


def _checked(constraint: Constraint | None, what: str) -> Constraint | None:
    """Return the constraint with its dimensions kept off the axes of its partial sums.

    Raises ShardingError if one axis does both, and UnsupportedError for partial sums along axes that do not fit the
    device axes.
    """
    if constraint is None:
        return None
    if (
        constraint.foreign is not None
        and SubgroupType.UNREDUCED in constraint.foreign.subgroup_types
    ):
        raise UnsupportedError(
            f"{what}: partial sums (unreduced) along axes that do not fit the device axes"
        )
    if not constraint.partial:
        return constraint
    if any(axis in constraint.partial for axes in constraint.dims for axis in axes):
        raise ShardingError(f"{what}: an axis both splits a dimension and is unreduced")
    return replace(constraint, excluded=(*constraint.excluded, *constraint.partial))
