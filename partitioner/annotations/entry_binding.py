"""Bindings of the module's parameters and outputs, by annotations and by the header's flags.

If propagation may not choose the sharding of a parameter or output, its annotation binds it; without an annotation it
is replicated. Otherwise it takes the sharding that propagation finds, if that divides it evenly (see
propagation_flags.py).
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.annotations.reader import SDY_SHARDING, Constraint
from partitioner.devices.axes import Axes
from partitioner.propagation.driver import ValueSharding
from partitioner.propagation.propagation_flags import Allowed, output_flags, parameter_flags
from partitioner.propagation.value_graph import ValueGraph, ValueShardings
from spmd.errors import ShardingError, UnsupportedError
from spmd.hlo import HloInstruction, HloModule
from spmd.shape import leaves
from spmd.sharding import HloSharding, SubgroupType


class EntryBinding:
    """Binding of the shardings of one module's parameters and outputs.

    ``outputs``: the sharding in which each leaf of the root is returned. ``inexpressible_*``: shardings that the
    module's axes cannot express (inexpressible_shardings.py). ``partial_*``: axes over which a parameter, or the output
    with that index, is a partial sum where the program begins or ends (partial_sums.py).
    """

    def __init__(self, module: HloModule, graph: ValueGraph) -> None:
        self.module = module
        self.graph = graph
        self.outputs: ValueShardings = ()
        self.inexpressible_inputs: dict[HloInstruction, HloSharding] = {}
        self.inexpressible_outputs: list[HloSharding | None] = []
        self.partial_inputs: dict[ValueSharding, Axes] = {}
        self.partial_outputs: list[Axes] = []
        #: Value shardings that propagation may extend, but only to even splits.
        self._even: list[ValueSharding] = []

    # ---- parameters
    def parameters(self) -> list[ValueShardings]:
        """Bind the entry's parameters and return their shardings."""
        flags = parameter_flags(self.module)
        return [
            self._parameter(parameter, allowed)
            for parameter, allowed in zip(self.module.entry.parameters, flags, strict=True)
        ]

    def _parameter(self, parameter: HloInstruction, flags: tuple[Allowed, ...]) -> ValueShardings:
        shardings = self.graph.new_shardings(parameter.shape, parameter.name)
        constraints = self.graph.reader.of_instruction(parameter)
        groups = self.graph.reader.groups_of(parameter)
        for sharding, constraint, allowed, group in zip(
            shardings, constraints, flags, groups, strict=True
        ):
            if sharding is None:
                continue
            if constraint is not None and constraint.inexpressible is not None:
                self.inexpressible_inputs[parameter] = constraint.inexpressible
            self._bind_parameter(sharding, constraint, allowed)
            if group:
                self.graph.join_group(group, sharding, aligned=group.startswith("shard_as"))
        return shardings

    def _bind_parameter(
        self, sharding: ValueSharding, constraint: Constraint | None, allowed: Allowed
    ) -> None:
        title = f"parameter {sharding.name}"
        constraint = _checked(constraint, title)
        if constraint is not None and constraint.partial:
            self.partial_inputs[sharding] = constraint.partial
        if allowed is Allowed.YES:
            if constraint is not None:
                self.graph.constrain((sharding,), (constraint,), title)
            self._even.append(sharding)
            return
        bound = constraint or Constraint.replicated(sharding.shape.rank)
        closed = replace(bound, open=(False,) * sharding.shape.rank)
        self.graph.constrain((sharding,), (closed,), title)

    # ---- outputs
    def bind_outputs(self, roots: ValueShardings) -> None:
        """Bind each output to the root's sharding, unless a Shardy result sharding already binds it."""
        root = self.module.entry.root
        constraints = self.graph.reader.of_instruction(root)
        producers = [value for value in root.elements for _ in leaves(value.shape)]
        flags = output_flags(self.module)
        outputs: list[ValueSharding | None] = []
        for producer, sharding, constraint, allowed in zip(
            producers, roots, constraints, flags, strict=True
        ):
            own = self.graph.reader.of_instruction(producer)[0]
            is_result = producer.annotations.frontend(SDY_SHARDING) is not None
            binding = own if is_result or constraint is None else constraint
            binding = _checked(binding, f"output {root.name}")
            self.inexpressible_outputs.append(_inexpressible_sharding(binding))
            self.partial_outputs.append(binding.partial if binding is not None else ())
            if not is_result:
                constraint = binding
            outputs.append(
                None
                if sharding is None
                else self._output(sharding, None if is_result else constraint, allowed, is_result)
            )
        self.outputs = tuple(outputs)

    def _output(
        self,
        sharding: ValueSharding,
        constraint: Constraint | None,
        allowed: Allowed,
        is_bound: bool,
    ) -> ValueSharding:
        root = self.module.entry.root
        if constraint is None and allowed is Allowed.NO and not is_bound:
            constraint = Constraint.replicated(sharding.shape.rank)
        if constraint is None and allowed is not Allowed.YES:
            return sharding
        output = ValueSharding.for_shape(sharding.shape, f"output of {root.name}")
        if constraint is not None:
            self.graph.constrain((output,), (constraint,), f"root {root.name}")
        else:
            self._even.append(output)
        self.graph.connect_same(sharding, output, root.name)
        return output

    # ---- after propagation
    def settle(self) -> None:
        """Replicate the values that propagation split unevenly: the host holds tiles of equal size."""
        for sharding in self._even:
            shards = [self.graph.axes.count(dim_axes) for dim_axes in sharding.dims]
            if any(size % n for size, n in zip(sharding.shape.dims, shards, strict=True)):
                sharding.fix(
                    ((),) * sharding.shape.rank, (False,) * sharding.shape.rank, "uneven tiles"
                )


def _inexpressible_sharding(constraint: Constraint | None) -> HloSharding | None:
    return constraint.inexpressible if constraint is not None else None


def _checked(constraint: Constraint | None, what: str) -> Constraint | None:
    """Return the constraint, with its dimensions excluded from the axes of its partial sums.

    Raises ShardingError if one axis does both, and UnsupportedError for partial sums along axes that do not fit the
    device axes.
    """
    if constraint is None:
        return None
    if (
        constraint.inexpressible is not None
        and SubgroupType.UNREDUCED in constraint.inexpressible.subgroup_types
    ):
        raise UnsupportedError(
            f"{what}: partial sums (unreduced) along axes that do not fit the device axes"
        )
    if not constraint.partial:
        return constraint
    if any(axis in constraint.partial for axes in constraint.dims for axis in axes):
        raise ShardingError(f"{what}: an axis both splits a dimension and is unreduced")
    return replace(constraint, excluded=(*constraint.excluded, *constraint.partial))
