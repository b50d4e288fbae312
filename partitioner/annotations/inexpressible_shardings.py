"""Shardings that the module's axes cannot express, for example [2,3] and [3,2] over the same 6 devices.

Their strides do not nest, so no common list of axes exists. The first sharding in the module's order of precedence
(axis_precedence.py) gives the module its axes. A parameter or output that is bound to another sharding passes through
the replicated value: it is gathered along its own axes on entry and cut along them on exit. Inside the program such an
annotation has no effect.

The same holds for devices in an order that no axes describe. The tiles are put in order first:

    {devices=[4]0,3,1,2}    a permute brings tile i from device list[i] to device i, where {devices=[4]<=[4]} has it
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.devices.axes import Axes, DeviceAxes, common_axes
from partitioner.devices.coordinate import device_coordinate
from partitioner.devices.device_order import Order, look_up
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.emit import emit_steps
from partitioner.reshard.search import plan_reshard
from spmd.builder import Builder
from spmd.device import IotaTile
from spmd.errors import ShardingError
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, PrimitiveType
from spmd.sharding import HloSharding, TileAssignment
from spmd.source_target_pairs import ListedPairs


class View:
    """Context for resharding steps on axes other than the module's, and optionally on devices in another order."""

    def __init__(self, axes: DeviceAxes, builder: Builder, order: Order | None = None) -> None:
        self.axes = axes
        self.builder = builder
        self.order = order

    def coordinate(self, axes: Axes) -> HloInstruction:
        b = self.builder
        position = b.partition_id()
        if self.order is not None:
            positions = [self.order.index(device) for device in range(len(self.order))]
            position = look_up(b, positions, position)
        return device_coordinate(b, self.axes, b.convert(position, PrimitiveType.S32), axes)


@dataclass(frozen=True, slots=True)
class OwnAxes:
    """Axes made for one sharding, its state along them, and the device at each position (None: position i is
    device i).
    """

    axes: DeviceAxes
    state: ShardState
    order: Order | None = None


def own_axes(sharding: HloSharding, rank: int, devices: DeviceAxes) -> OwnAxes:
    """Return axes of the sharding's own. If no axes describe its tiles, number its devices in the listed order."""
    axes = replace(common_axes(devices.num_devices, [sharding]), replicas=devices.replicas)
    try:
        dims, _ = axes.axes_of_sharding(sharding, rank)
    except ShardingError:
        if sharding.tiles is None or sharding.tiles.num_devices != axes.num_devices:
            raise
        order = tuple(int(i) for i in sharding.tiles.device_ids().reshape(-1))
        counted = replace(sharding, tiles=TileAssignment(IotaTile.of(sharding.tiles.dims)))
        return replace(own_axes(counted, rank, devices), order=order)
    return OwnAxes(axes, ShardState(dims))


def gather_inexpressible(
    context: PartitionContext, hlo: HloInstruction, sharding: HloSharding, shape: ArrayShape
) -> ShardedValue:
    """Return the replicated value, gathered from the tiles ``hlo`` under ``sharding``."""
    own = own_axes(sharding, shape.rank, context.axes)
    replicated = ShardState.replicated(shape.rank)
    steps = plan_reshard(own.axes, shape, own.state, replicated)
    if own.order is not None:
        pairs = ListedPairs(tuple((device, position) for position, device in enumerate(own.order)))
        hlo = context.builder.collective_permute(hlo, pairs)
    tile = ShardedValue(hlo, own.state, shape)
    return ShardedValue(emit_steps(View(own.axes, context.builder), tile, steps), replicated, shape)


def slice_inexpressible(
    context: PartitionContext, value: ShardedValue, sharding: HloSharding
) -> HloInstruction:
    """Return this device's tile of ``value`` under ``sharding``."""
    shape = value.shape
    own = own_axes(sharding, shape.rank, context.axes)
    replicated = context.replicate(value)
    steps = plan_reshard(own.axes, shape, replicated.state, own.state)
    return emit_steps(View(own.axes, context.builder, own.order), replicated, steps)
