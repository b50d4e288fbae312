"""Shardings that the module's axes cannot express: 6 devices as [2,3] in one place and as [3,2] in another.

Their strides do not nest, so there is no common list of axes. The first sharding met gives the
module its axes; a parameter
or an output that is bound to another one crosses over through the whole value: gathered along axes
of its own on the way
in, cut along them on the way out. Inside the program such an annotation is a wish that is not fulfilled.
"""

from __future__ import annotations

from partitioner.axes import Axes, DeviceAxes, common_axes
from partitioner.context import PartitionContext, ShardedValue
from partitioner.coordinate import device_coordinate
from partitioner.reshard.emit import emit_steps
from partitioner.reshard.search import plan_reshard
from partitioner.state import ShardState
from spmd.builder import Builder
from spmd.hlo import HloInstruction
from spmd.shape import ArrayShape, PrimitiveType
from spmd.sharding import HloSharding


class View:
    """A place to write resharding steps along other axes than the module's."""

    def __init__(self, axes: DeviceAxes, builder: Builder) -> None:
        self.axes = axes
        self.builder = builder

    def coordinate(self, axes: Axes) -> HloInstruction:
        b = self.builder
        return device_coordinate(b, self.axes, b.convert(b.partition_id(), PrimitiveType.S32), axes)


def own_axes(sharding: HloSharding, rank: int, num_devices: int) -> tuple[DeviceAxes, ShardState]:
    """Axes made for ``sharding`` alone and its state along them; ShardingError for a list that no axes describe."""
    axes = common_axes(num_devices, [sharding])
    dims, _ = axes.axes_of_sharding(sharding, rank)
    return axes, ShardState(dims)


def gather_foreign(
    context: PartitionContext, hlo: HloInstruction, sharding: HloSharding, shape: ArrayShape
) -> ShardedValue:
    """The whole value from a tile of it."""
    axes, state = own_axes(sharding, shape.rank, context.axes.num_devices)
    whole = ShardState.replicated(shape.rank)
    steps = plan_reshard(axes, shape, state, whole)
    view = View(axes, context.builder)
    return ShardedValue(emit_steps(view, ShardedValue(hlo, state, shape), steps), whole, shape)


def cut_foreign(
    context: PartitionContext, value: ShardedValue, sharding: HloSharding
) -> HloInstruction:
    """The tile of a value under ``sharding``."""
    shape = value.shape
    axes, state = own_axes(sharding, shape.rank, context.axes.num_devices)
    whole = context.replicate(value)
    steps = plan_reshard(axes, shape, whole.state, state)
    return emit_steps(View(axes, context.builder), whole, steps)
