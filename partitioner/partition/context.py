"""Context of partitioning functions: partitioned values, wanted states, resharding, offsets and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from partitioner.annotations.reader import AnnotationReader
from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.devices.coordinate import device_coordinate
from partitioner.partition.rematerialize import rematerialization_cost, rematerialize_value
from partitioner.partition.shard_state import ShardState, tile_size
from partitioner.report import Purpose, ReshardRecord
from partitioner.reshard.bound import lower_bound
from partitioner.reshard.cost import plan_wire_bytes
from partitioner.reshard.emit import emit_steps
from partitioner.reshard.search import plan_reshard, reshard_cost
from spmd.builder import Builder
from spmd.errors import VerificationError
from spmd.hlo import HloComputation, HloInstruction, HloModule
from spmd.hlo.collective_opcodes import KIND
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, PrimitiveType

if TYPE_CHECKING:
    from partitioner.spmd_partitioner import SpmdPartitioner


@dataclass(frozen=True, slots=True)
class ShardedValue:
    """A per-device array, its state, and the shape of the global value.

    ``hlo`` has shape ``state.local_shape(shape)``; ``shape`` is global (inside a manual region: the region's shape).
    """

    hlo: HloInstruction
    state: ShardState
    shape: ArrayShape
    #: The source instruction if recomputing the value may be cheaper than moving it (rematerialize.py).
    producer: HloInstruction | None = None


class PartitionContext:
    """Context of one computation while it is partitioned. Functions in partitioner/ops receive it."""

    def __init__(
        self,
        driver: SpmdPartitioner,
        source: HloComputation,
        target: HloComputation,
        root_states: Sequence[ShardState] = (),
    ) -> None:
        self.driver = driver
        self.axes: DeviceAxes = driver.axes
        self.reader: AnnotationReader = driver.reader
        self.source = source
        self.target = target
        #: State into which each leaf of the root is brought.
        self.root_states = tuple(root_states)
        self.builder = Builder(target, driver.scope)
        #: The instruction that the current reshards serve, and their purpose (report.py).
        self.serving: HloInstruction = source.root
        self.purpose = Purpose.OPERAND
        self._made_from: dict[HloInstruction, HloInstruction] = {}
        self._values: dict[HloInstruction, tuple[ShardedValue, ...]] = {}
        self._reshards: dict[tuple[ShardedValue, ShardState], ShardedValue] = {}
        self._coordinates: dict[Axes, HloInstruction] = {}
        self._partition_id: HloInstruction | None = None

    @property
    def module(self) -> HloModule:
        """The module being built."""
        if self.target.module is None:
            raise VerificationError(f"computation {self.target.name} has no module")
        return self.target.module

    # ---- values
    def value(self, instruction: HloInstruction) -> ShardedValue:
        """Return the sharded form of an array-valued instruction of the source computation."""
        (value,) = self._values[instruction]
        return value

    def values(self, instruction: HloInstruction) -> tuple[ShardedValue, ...]:
        """Return one value per leaf (a tuple is its leaves, in leaf order)."""
        return self._values[instruction]

    def set_values(self, instruction: HloInstruction, values: tuple[ShardedValue, ...]) -> None:
        self._values[instruction] = values
        for value in values:
            self._made_from.setdefault(value.hlo, instruction)

    def wanted(self, instruction: HloInstruction, leaf: int = 0) -> ShardState:
        """Return the state that propagation chose for a result leaf. It binds annotations; for every other op it is a
        preference.
        """
        return self.driver.wanted(instruction, leaf)

    def manual_axes(self, instruction: HloInstruction) -> Axes:
        """Return the axes along which the value differs because of a manual region: they may not shard it."""
        return self.driver.manual_axes(instruction)

    def reshard(self, value: ShardedValue, state: ShardState) -> ShardedValue:
        """Return ``value`` in another state, by the cheapest steps; the result is cached per value and state."""
        if value.state == state:
            return value
        # One local array may stand for two values, before and after a shape conversion of a manual region.
        key = (value, state)
        if key not in self._reshards:
            self._reshards[key] = self._reshard(value, state)
        return self._reshards[key]

    def _reshard(self, value: ShardedValue, state: ShardState) -> ShardedValue:
        if value.producer is not None and rematerialization_cost(
            self, value, state
        ) < self._move_cost(value, state):
            return rematerialize_value(self, value, state)
        steps = plan_reshard(self.axes, value.shape, value.state, state)
        before = len(self.target)
        result = replace(value, hlo=emit_steps(self, value, steps), state=state)
        collectives = self.collectives_since(before)
        if collectives:
            self.driver.report.reshards.append(
                ReshardRecord(
                    self._made_from.get(value.hlo, self.serving),
                    self.serving,
                    self.purpose,
                    value.shape,
                    value.state,
                    state,
                    plan_wire_bytes(self.axes, value.shape, value.state, steps),
                    lower_bound(self.axes, value.shape, value.state, state),
                    collectives,
                )
            )
        return result

    def collectives_since(self, count: int) -> tuple[HloInstruction, ...]:
        """Return the collectives written since the target had ``count`` instructions."""
        added = self.target.newest(len(self.target) - count)
        return tuple(instruction for instruction in added if instruction.opcode in KIND)

    def reshard_cost(self, value: ShardedValue, state: ShardState) -> float:
        """Return the cost of ``reshard`` in bytes on the wire; 0 for a state into which the value has already been
        brought.
        """
        if value.state == state or (value, state) in self._reshards:
            return 0.0
        move = self._move_cost(value, state)
        return (
            min(move, rematerialization_cost(self, value, state))
            if value.producer is not None
            else move
        )

    def _move_cost(self, value: ShardedValue, state: ShardState) -> float:
        return reshard_cost(self.axes, value.shape, value.state, state)

    def replicate(self, value: ShardedValue) -> ShardedValue:
        return self.reshard(value, ShardState.replicated(value.shape.rank))

    def copy_callee(self, computation: HloComputation) -> HloComputation:
        """Copy a reducer, comparator, combiner, ... to the new module unchanged: it works on elements."""
        return self.driver.copy_callee(computation)

    # ---- arithmetic on partition-id
    def coordinate(self, axes: Axes) -> HloInstruction:
        """Return this device's index along ``axes`` taken as one, major to minor (s32[]). The code grows with the axes,
        not with N.
        """
        if axes not in self._coordinates:
            self._coordinates[axes] = self._coordinate(axes)
        return self._coordinates[axes]

    def _coordinate(self, axes: Axes) -> HloInstruction:
        b = self.builder
        if not axes:
            return b.scalar(PrimitiveType.S32, 0)
        if self._partition_id is None:
            self._partition_id = b.convert(b.partition_id(), PrimitiveType.S32)
        return device_coordinate(b, self.axes, self._partition_id, axes)

    def offset(self, value_state: ShardState, dim: int, size: int) -> HloInstruction:
        """Return the global index of the first element that this device holds of a dimension of global ``size``
        (s32[]).
        """
        axes = value_state.dims[dim]
        tile = tile_size(size, self.axes.count(axes))
        b = self.builder
        return b.multiply(self.coordinate(axes), b.scalar(PrimitiveType.S32, tile))

    # ---- padding
    def is_uneven(self, value: ShardedValue, dim: int) -> bool:
        shards = self.axes.count(value.state.dims[dim])
        return value.shape.dims[dim] % shards != 0

    def valid(self, value: ShardedValue, dims: tuple[int, ...]) -> HloInstruction | None:
        """Return a pred array of the local shape: true for elements that are no padding along ``dims``; None without
        padding.
        """
        b = self.builder
        local = value.hlo.dims
        keep: HloInstruction | None = None
        for dim in dims:
            if not self.is_uneven(value, dim):
                continue
            size, tile = value.shape.dims[dim], (local[dim],)
            start = b.broadcast_scalar(self.offset(value.state, dim, size), tile)
            position = b.add(b.iota(PrimitiveType.S32, tile, 0), start)
            limit = b.broadcast_scalar(b.scalar(PrimitiveType.S32, size), tile)
            valid = b.broadcast(b.compare(position, limit, "LT"), (dim,), local)
            keep = valid if keep is None else b.logical_and(keep, valid)
        return keep

    def mask_padding(
        self, value: ShardedValue, dims: tuple[int, ...], fill: object
    ) -> HloInstruction:
        """Return the local array with its padding along ``dims`` (unevenly split ones) replaced by the scalar
        ``fill``.
        """
        keep = self.valid(value, dims)
        if keep is None:
            return value.hlo
        b = self.builder
        return b.select(keep, value.hlo, b.full(value.hlo.array_shape, fill))
