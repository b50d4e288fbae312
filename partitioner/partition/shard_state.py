"""ShardState: the distribution of one value over the device axes during partitioning."""

from __future__ import annotations

from dataclasses import replace

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class ShardState:
    """Distribution of a value: the axes that split each dimension (major to minor), and the axes of a pending
    reduction.

    Every other axis holds copies. No axis occurs twice.

    Tiles: a dimension of size n split into s shards has tiles of ceil(n/s); shard i holds elements [i*tile,
    (i+1)*tile). Elements beyond n are padding of unspecified value ("dirty"); a reduction over them must mask them
    first. A partial value with reduction SUM means: the true value is the sum over the devices along ``partial``.
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
        """The axes that split a dimension, in dimension order."""
        return tuple(a for axes in self.dims for a in axes)

    def with_dim(self, dim: int, axes: Axes) -> ShardState:
        return replace(self, dims=(*self.dims[:dim], axes, *self.dims[dim + 1 :]))

    def without_partial(self) -> ShardState:
        return replace(self, partial=(), reduction=None)

    def shards(self, axes: DeviceAxes) -> tuple[int, ...]:
        return tuple(axes.count(d) for d in self.dims)

    def local_dims(self, dims: tuple[int, ...], axes: DeviceAxes) -> tuple[int, ...]:
        """Return the tile sizes of a value of global sizes ``dims``."""
        return tuple(-(-n // s) for n, s in zip(dims, self.shards(axes), strict=True))

    def local_shape(self, shape: ArrayShape, axes: DeviceAxes) -> ArrayShape:
        return ArrayShape(shape.element_type, self.local_dims(shape.dims, axes))

    def sharding(self, axes: DeviceAxes) -> HloSharding:
        return axes.sharding(self.dims, partial=self.partial)


def tile_size(size: int, shards: int) -> int:
    return -(-size // shards)
