"""Driver of the partitioner: it turns a logical module with annotations into the program of one device.

prepare -> read annotations -> value graph -> propagate -> partition each computation -> clean up
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import partitioner.ops  # noqa: F401 - fills the registries
from partitioner.annotations.constant_splitter import merge_constants
from partitioner.annotations.entry_binding import EntryBinding
from partitioner.annotations.inexpressible_shardings import (
    gather_inexpressible,
    slice_inexpressible,
)
from partitioner.annotations.manual_regions import shape_conversion
from partitioner.annotations.reader import AnnotationReader, without_shardings
from partitioner.annotations.single_device import effect_device, partition_on_device
from partitioner.devices.axes import Axes
from partitioner.devices.device_order import (
    Order,
    device_order,
    rename_to_devices,
    rename_to_positions,
)
from partitioner.ops.tuple import local_shape, pack, unpack
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import partition_generic, reshard_to
from partitioner.partition.partial_sums import as_partial_sums, leaves_unreduced, with_partial
from partitioner.partition.shard_state import ShardState
from partitioner.partition.unsharded_ops import needs_unsharded_operands, partition_unsharded
from partitioner.prepare import prepare
from partitioner.propagation.driver import propagate
from partitioner.propagation.value_graph import ValueGraph, ValueShardings, spread_manual
from partitioner.registry import REMATERIALIZERS, partitioner_of
from partitioner.report import PartitionReport, Purpose
from spmd.builder import ModuleScope
from spmd.errors import ShardingError, UnsupportedError
from spmd.hlo import (
    Annotations,
    EntryLayout,
    HloComputation,
    HloInstruction,
    HloModule,
    Opcode,
    Stage,
)
from spmd.hlo.clone import clone_computation, clone_module, copy_header
from spmd.ops.attrs import ParameterAttrs
from spmd.ops.custom_call import custom_call_target, is_sharding_annotation
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.shape import ArrayShape, Shape, TupleShape, subshape
from spmd.shape_compatibility import without_layout
from spmd.sharding import HloSharding
from spmd.text.stage import device_count


def partition_module(module: HloModule, num_devices: int) -> HloModule:
    """Return the per-device program (stage PARTITIONED) of a logical module; ``module`` stays as it is.
    ``num_devices``: the devices of all replicas.

    Entry parameters and the root keep the sharding of the global value of which they are a tile. Raises ShardingError
    for annotations that do not fit, and UnsupportedError for ops that it refuses by name.
    """
    return partitioned(module, num_devices).result


def partitioned(module: HloModule, num_devices: int) -> SpmdPartitioner:
    """Run the driver of ``partition_module`` and return it: ``result``, and the data that explain it (``graph``,
    ``report``).

    The explaining data number devices by position (device_order.py).
    """
    driver = driver_of(module, num_devices)
    result = driver.run()
    if driver.order is not None:
        rename_to_devices(result, driver.order)
    return driver


def driver_of(module: HloModule, num_devices: int) -> SpmdPartitioner:
    """Return the driver of a prepared copy of ``module``, in which devices are numbered by position."""
    partitions = partitions_of_replica(module, num_devices)
    logical = clone_module(module)
    prepare(logical)
    order = device_order(logical, partitions)
    if order is not None:
        rename_to_positions(logical, order)
    driver = SpmdPartitioner(logical, partitions)
    driver.order = order
    return driver


class SpmdPartitioner:
    """One partitioning: the annotations and value shardings of a prepared module, and the module being built."""

    def __init__(self, module: HloModule, num_partitions: int) -> None:
        self.module = module
        self.num_partitions = num_partitions
        #: Device at each position; None if position i is device i (device_order.py).
        self.order: Order | None = None
        self.reader = AnnotationReader.for_module(module, num_partitions)
        self.axes = self.reader.axes
        self.result = HloModule(module.name)
        self.scope = ModuleScope(self.result)
        copy_header(module, self.result)
        self.result.frontend_attributes = ()
        self._callees: dict[HloComputation, HloComputation] = {}
        self.graph = ValueGraph(self.reader, self._region_axes())
        self.report = PartitionReport()
        self.entry = EntryBinding(module, self.graph)

    @property
    def num_devices(self) -> int:
        """The number of devices of all replicas."""
        return self.num_partitions * self.module.replica_count

    def run(self) -> HloModule:
        self.propagate()
        self._partition_entry()
        self._finish()
        return self.result

    # ---- propagation
    def propagate(self) -> None:
        """Find the sharding of every value; ``graph`` holds them."""
        roots = self.graph.add_computation(self.module.entry, self.entry.parameters())
        self.entry.bind_outputs(roots)
        spread_manual(self.graph)
        propagate(self.axes, self.graph.edges, self.graph.array_shardings())
        if self.graph.groups.align(self.axes):
            propagate(self.axes, self.graph.edges)
        self.entry.settle()

    def _region_axes(self) -> Axes:
        """Return the axes that some manual region works on; all axes without one, since partition-id may differ along
        all.
        """
        found: set[int] = set()
        any_region = False
        for instruction in self.module.all_instructions():
            conversion = (
                shape_conversion(instruction, self.reader)
                if custom_call_target(instruction)
                else None
            )
            if conversion is not None:
                any_region = True
                found.update(conversion.axes)
        return tuple(sorted(found)) if any_region else self.axes.all

    # ---- queries of a context
    def wanted(self, instruction: HloInstruction, leaf: int) -> ShardState:
        sharding = self.graph.shardings(instruction)[leaf]
        return ShardState(sharding.state_dims) if sharding is not None else ShardState(())

    def manual_axes(self, instruction: HloInstruction) -> Axes:
        found = {
            a
            for sharding in self.graph.shardings(instruction)
            if sharding is not None
            for a in sharding.forbidden
        }
        return tuple(sorted(found))

    def copy_callee(self, computation: HloComputation) -> HloComputation:
        if computation not in self._callees:
            copy = clone_computation(computation, self.result, self.copy_callee)
            for instruction in copy.instructions:
                instruction.sharding = None
                instruction.annotations = without_shardings(instruction.annotations)
            self._callees[computation] = copy
        return self._callees[computation]

    # ---- partitioning
    def _partition_entry(self) -> None:
        entry = self.module.entry
        target = self.result.new_computation(entry.name)
        self.result.entry = target
        context = PartitionContext(self, entry, target, self._states(self.entry.outputs))
        for parameter in entry.parameters:
            self._add_parameter(
                context,
                parameter,
                self._parameter_states(parameter),
                keep_sharding=True,
            )
        values = self._partition_body(context)
        context.serving, context.purpose = entry.root, Purpose.OUTPUT
        outputs = [
            as_partial_sums(context, value, state, axes)
            for value, state, axes in zip(
                values, context.root_states, self.entry.partial_outputs, strict=True
            )
        ]
        states = tuple(
            inexpressible or value.state.sharding(self.axes)
            for value, inexpressible in zip(outputs, self.entry.inexpressible_outputs, strict=True)
        )
        outputs = [
            replace(value, hlo=slice_inexpressible(context, value, inexpressible))
            if inexpressible
            else value
            for value, inexpressible in zip(outputs, self.entry.inexpressible_outputs, strict=True)
        ]
        target.root = pack(context, outputs, entry.root.shape)
        is_tuple = isinstance(entry.root.shape, TupleShape)
        target.root.sharding = HloSharding.tuple_of(states) if is_tuple else states[0]

    def partition_callee(
        self,
        computation: HloComputation,
        parameters: Sequence[ShardState],
        results: Sequence[ShardState],
    ) -> HloComputation:
        """Partition a control-flow computation, with its parameter leaves and root leaves in the given states."""
        target = self.result.new_computation(computation.name)
        context = PartitionContext(self, computation, target, results)
        (parameter,) = computation.parameters
        self._add_parameter(context, parameter, list(parameters), keep_sharding=False)
        values = self._partition_body(context)
        context.serving, context.purpose = computation.root, Purpose.CARRIED
        outputs = [
            context.reshard(value, state) for value, state in zip(values, results, strict=True)
        ]
        target.root = pack(context, outputs, computation.root.shape)
        return target

    def _add_parameter(
        self,
        context: PartitionContext,
        parameter: HloInstruction,
        states: list[ShardState],
        *,
        keep_sharding: bool,
    ) -> None:
        inexpressible = self.entry.inexpressible_inputs.get(parameter) if keep_sharding else None
        if inexpressible is not None and not isinstance(parameter.shape, ArrayShape):
            raise UnsupportedError(
                f"{parameter.name}: {inexpressible} on part of a tuple does not fit the device axes"
            )
        shape = local_shape(context, iter(states), parameter.shape)
        if inexpressible is not None:
            shape = without_layout(inexpressible.shard_shape(parameter.shape))
        attrs = parameter.attrs_as(ParameterAttrs)
        annotations = Annotations(metadata=parameter.annotations.metadata)
        clone = context.target.create(
            Opcode.PARAMETER, shape, (), attrs, name=parameter.name, annotations=annotations
        )
        if keep_sharding:
            shardings = tuple(state.sharding(self.axes) for state in states)
            is_tuple = isinstance(shape, TupleShape)
            clone.sharding = HloSharding.tuple_of(shardings) if is_tuple else shardings[0]
        if inexpressible is not None:
            clone.sharding = inexpressible
            global_shape = parameter.array_shape.without_layout()
            context.set_values(
                parameter, (gather_inexpressible(context, clone, inexpressible, global_shape),)
            )
            return
        values = unpack(context, clone, states, parameter.shape)
        context.set_values(parameter, self._reduced(context, parameter, values))

    def _parameter_states(self, parameter: HloInstruction) -> list[ShardState]:
        partial = self.entry.partial_inputs
        return [
            ShardState(())
            if sharding is None
            else with_partial(ShardState(sharding.state_dims), partial.get(sharding, ()))
            for sharding in self.graph.shardings(parameter)
        ]

    def _leaves_unreduced(
        self, context: PartitionContext, instruction: HloInstruction, leaf: int, value: ShardedValue
    ) -> bool:
        outputs = self.entry.partial_outputs
        is_entry = context.source is self.module.entry
        return is_entry and leaves_unreduced(context, instruction, leaf, value, outputs)

    def _reduced(
        self,
        context: PartitionContext,
        instruction: HloInstruction,
        values: tuple[ShardedValue, ...],
    ) -> tuple[ShardedValue, ...]:
        """Return the values of ``instruction`` with partial values reduced, except those that leave the program
        partial.
        """
        return tuple(
            value
            if self._leaves_unreduced(context, instruction, i, value)
            else reshard_to(context, value, context.wanted(instruction, i))
            for i, value in enumerate(values)
        )

    def _states(self, shardings: ValueShardings) -> list[ShardState]:
        return [
            ShardState(sharding.state_dims) if sharding is not None else ShardState(())
            for sharding in shardings
        ]

    def _partition_body(self, context: PartitionContext) -> tuple[ShardedValue, ...]:
        for instruction in context.source.post_order():
            if instruction.opcode is not Opcode.PARAMETER:
                context.set_values(instruction, self._partition_one(context, instruction))
        return context.values(context.source.root)

    def _partition_one(
        self, context: PartitionContext, instruction: HloInstruction
    ) -> tuple[ShardedValue, ...]:
        context.serving, context.purpose = instruction, Purpose.OPERAND
        before = len(context.target)
        values = self._compute(context, instruction)
        for collective in context.collectives_since(before):
            self.report.op_collectives[collective] = instruction
        context.purpose = Purpose.RESULT
        if instruction.opcode in REMATERIALIZERS:
            values = tuple(replace(value, producer=instruction) for value in values)
        return self._reduced(context, instruction, values)

    def _compute(
        self, context: PartitionContext, instruction: HloInstruction
    ) -> tuple[ShardedValue, ...]:
        """Partition by the special function of the op or target, else by the op's rule."""
        device = effect_device(self.reader, instruction)
        if device is not None:
            return partition_on_device(context, instruction, device)
        if is_sharding_annotation(instruction):
            given = context.values(instruction.operand(0))
            if len(given) == 1 and self._leaves_unreduced(context, instruction, 0, given[0]):
                return given
        special = partitioner_of(instruction)
        values = special(context, instruction) if special is not None else None
        if values is not None:
            return values
        if needs_unsharded_operands(instruction):
            return partition_unsharded(context, instruction)
        return partition_generic(context, instruction)

    # ---- the result's header
    def _finish(self) -> None:
        result = self.result
        result.num_partitions = self.num_partitions
        result.states_partitions = True
        result.stage = Stage.PARTITIONED
        merge_constants(result)
        DeadCodeElimination().run(result)
        result.computations = result.computations_post_order()
        parameters = tuple(p.shape for p in result.entry.parameters)
        result.entry_layout = EntryLayout(parameters, result.entry.root.shape)
        result.input_output_alias = tuple(
            alias
            for alias in result.input_output_alias
            if self._same_size(
                parameters[alias.parameter], alias.parameter_index, alias.output_index
            )
        )

    def _same_size(
        self, parameter: Shape, parameter_index: tuple[int, ...], output_index: tuple[int, ...]
    ) -> bool:
        """Return whether both tiles have one size; an alias holds only then."""
        output = subshape(self.result.entry.root.shape, output_index)
        return subshape(parameter, parameter_index) == output


def partitions_of_replica(module: HloModule, num_devices: int) -> int:
    """Return the number of devices of each replica. Raises ShardingError if they do not divide evenly."""
    if num_devices % module.replica_count:
        raise ShardingError(
            f"{num_devices} devices cannot hold {module.replica_count} replicas of {module.name}"
        )
    return num_devices // module.replica_count


def require_devices(module: HloModule, num_devices: int) -> None:
    """Raise ShardingError if the module says it is for another number of devices."""
    named = device_count(module)
    if named not in (1, num_devices):
        raise ShardingError(f"the module is for {named} devices, but {num_devices} were requested")
