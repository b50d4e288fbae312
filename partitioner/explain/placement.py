"""Text of the shardings of one partitioning: by device number in HLO, and in short form with axis names."""

from __future__ import annotations

from partitioner.devices.axes import DimAxes
from partitioner.devices.device_order import renamed_sharding
from partitioner.explain.axis_names import AxisNames
from partitioner.partition.shard_state import ShardState
from partitioner.spmd_partitioner import SpmdPartitioner
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding


class Placement:
    """Formatter of a partitioner's states after its run. The partitioner numbers devices by position
    (device_order.py).
    """

    def __init__(self, driver: SpmdPartitioner) -> None:
        self.names = AxisNames(driver.reader)
        self._axes = driver.axes
        self._order = driver.order

    def on_devices(self, sharding: HloSharding) -> HloSharding:
        """Convert a sharding by position to one by device number."""
        return sharding if self._order is None else renamed_sharding(sharding, self._order)

    def sharding(self, state: ShardState) -> HloSharding:
        """Return ``state`` as the sharding that an annotation of the module would state."""
        return self.on_devices(state.sharding(self._axes))

    def hlo(self, state: ShardState) -> str:
        """Return the annotation, and the pending reduction if there is one."""
        text = str(self.sharding(state))
        if not state.partial:
            return text
        kind = state.reduction.value if state.reduction is not None else "reduction"
        return f"{text} partial {kind} over {self.names.join(state.partial)}"

    def array(self, shape: ArrayShape, state: ShardState) -> str:
        """Return the short form: ``f32[8@data,16]{sum over model}``."""
        return self.names.array(shape, state)

    def partition_spec(self, dims: DimAxes) -> str:
        """Return JAX's notation; "" if a mesh has no name for an axis."""
        return self.names.partition_spec(dims)
