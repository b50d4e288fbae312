"""ShardState: how one value is spread over the device axes while a module is partitioned."""

from __future__ import annotations

from dataclasses import dataclass, replace

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from spmd.device import ReductionKind
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class ShardState:
    """Per dimension the axes that split it (major to minor), and the axes over which the value is still to be reduced.

    Every other axis holds copies. No axis stands twice.

    Tiles: a dimension of size n split in s shards has tiles of ceil(n/s); shard i holds elements [i*tile, (i+1)*tile).
    What lies beyond n is padding of unspecified value ("dirty"): whoever reduces over it masks it first.
    A partial value with reduction SUM means: the true value is the sum over the devices along ``partial``.
    """

    dims: DimAxes
    partial: Axes = ()
    reduction: ReductionKind | None = None

    @staticmethod
    def replicated(rank: int) -> ShardState:
        return ShardState(((),) * rank)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def used(self) -> Axes:
        """All axes that split a dimension, in dimension order."""
        return tuple(a for axes in self.dims for a in axes)

    def with_dim(self, dim: int, axes: Axes) -> ShardState:
        return replace(self, dims=(*self.dims[:dim], axes, *self.dims[dim + 1 :]))

    def without_partial(self) -> ShardState:
        return replace(self, partial=(), reduction=None)

    def shards(self, axes: DeviceAxes) -> tuple[int, ...]:
        return tuple(axes.count(d) for d in self.dims)

    def local_dims(self, dims: tuple[int, ...], axes: DeviceAxes) -> tuple[int, ...]:
        """Tile sizes of a value of global sizes ``dims``."""
        return tuple(-(-n // s) for n, s in zip(dims, self.shards(axes), strict=True))

    def local_shape(self, shape: ArrayShape, axes: DeviceAxes) -> ArrayShape:
        return ArrayShape(shape.element_type, self.local_dims(shape.dims, axes))

    def sharding(self, axes: DeviceAxes) -> HloSharding:
        return axes.sharding(self.dims, partial=self.partial)


def tile_size(size: int, shards: int) -> int:
    return -(-size // shards)
