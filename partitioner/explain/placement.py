"""Text of the shardings of one partitioning: by device number in HLO, and in short with the names of axes."""

from __future__ import annotations

from partitioner.devices.axes import DimAxes
from partitioner.devices.device_order import renamed_sharding
from partitioner.explain.axis_names import AxisNames
from partitioner.partition.shard_state import ShardState
from partitioner.spmd_partitioner import SpmdPartitioner
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding


class Placement:
    """Writes states of a partitioner after its run, which counts devices by position (device_order.py)."""

    def __init__(self, driver: SpmdPartitioner) -> None:
        self.names = AxisNames(driver.reader)
        self._axes = driver.axes
        self._order = driver.order

    def on_devices(self, sharding: HloSharding) -> HloSharding:
        """A sharding by position, by device number."""
        return sharding if self._order is None else renamed_sharding(sharding, self._order)

    def sharding(self, state: ShardState) -> HloSharding:
        """``state`` as an annotation of the module would say it."""
        return self.on_devices(state.sharding(self._axes))

    def hlo(self, state: ShardState) -> str:
        """The annotation, and what is still to be reduced."""
        text = str(self.sharding(state))
        if not state.partial:
            return text
        kind = state.reduction.value if state.reduction is not None else "reduction"
        return f"{text} partial {kind} over {self.names.join(state.partial)}"

    def array(self, shape: ArrayShape, state: ShardState) -> str:
        """In short: ``f32[8@data,16]{sum over model}``."""
        return self.names.array(shape, state)

    def partition_spec(self, dims: DimAxes) -> str:
        """In JAX's notation; "" where a mesh has no name for an axis."""
        return self.names.partition_spec(dims)
