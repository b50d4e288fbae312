"""Change of the tile size along a dimension with elements from neighbours.

Shard i of s holds elements [i*old, (i+1)*old) and wants [i*new, (i+1)*new). The edges of shard i drift by
i*(new - old), so at most (s-1) * |new - old| elements come from one neighbour: the next one where tiles grow, the
previous one where they shrink. 9 elements over 2 shards, tiles of 5 (even with 10) to tiles of 6 (even with 12):

    shard 0  0 1 2 3 4 | 5        from shard 1: its first element
    shard 1  . 6 7 8 . .          drops what shard 0 has now; what it has beyond 8 is padding
"""

from __future__ import annotations

import math

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.devices.device_lines import shift_pairs
from partitioner.reshard.step import ReshardContext
from partitioner.reshard.tiles import pad_to, replaced, trim_to
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

_S32 = PrimitiveType.S32


@dataclass(frozen=True, slots=True)
class TileSizeChange:
    """Change from tiles of ``old`` elements along ``dim``, split by ``dim_axes``, to tiles of ``new``.

    Elements beyond the dimension are unspecified before and after.
    """

    dim: int
    dim_axes: Axes
    old: int
    new: int

    def halo(self, axes: DeviceAxes) -> int:
        """Return the number of elements along the dimension that come from a neighbour."""
        return (axes.count(self.dim_axes) - 1) * abs(self.new - self.old)

    def fits_nearest_neighbour(self, axes: DeviceAxes) -> bool:
        """Return whether one neighbour holds all elements that a shard lacks."""
        return self.halo(axes) <= self.old

    def local_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return the local sizes after the change."""
        return replaced(dims, self.dim, self.new)

    def dims_before(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return the local sizes before, from those after."""
        return replaced(dims, self.dim, self.old)

    def sent_elements(self, axes: DeviceAxes, local: tuple[int, ...]) -> int:
        """Return the elements that a shard of sizes ``local`` sends to its neighbour; the shard at the end need not."""
        return math.prod(replaced(local, self.dim, self.halo(axes)))

    @property
    def is_exchange(self) -> bool:
        """Return whether devices communicate: an unsplit dimension is padded or trimmed."""
        return bool(self.dim_axes) and self.old != self.new

    def emit(self, context: ReshardContext, x: HloInstruction) -> HloInstruction:
        """Return the local array with the new tile. The nearest neighbour must have the missing elements
        (``fits_nearest_neighbour``).
        """
        if not self.is_exchange:
            dims = self.local_dims(x.dims)
            fitting = pad_to if self.new > self.old else trim_to
            return fitting(context.builder, x, dims)
        return self._grow(context, x) if self.new > self.old else self._shrink(context, x)

    def _grow(self, context: ReshardContext, x: HloInstruction) -> HloInstruction:
        """Grow tiles: shard i's window begins i*drift into its tile; the last one's ends in padding."""
        b, halo = context.builder, self.halo(context.axes)
        pairs = shift_pairs(context.axes, self.dim_axes, -1)
        came = b.collective_permute(b.slice_along(x, self.dim, 0, halo), pairs)
        joined = b.concatenate([x, came], self.dim)
        room = replaced(x.dims, self.dim, halo + self.new)
        return self._window(context, pad_to(b, joined, room), 0)

    def _shrink(self, context: ReshardContext, x: HloInstruction) -> HloInstruction:
        """Shrink tiles: shard i's window begins i*drift before its tile."""
        b, halo = context.builder, self.halo(context.axes)
        pairs = shift_pairs(context.axes, self.dim_axes, 1)
        end = x.dims[self.dim]
        came = b.collective_permute(b.slice_along(x, self.dim, self.old - halo, end), pairs)
        return self._window(context, b.concatenate([came, x], self.dim), halo)

    def _window(self, context: ReshardContext, x: HloInstruction, first: int) -> HloInstruction:
        """Return the new tile, which begins at ``first`` on shard 0 and ``new - old`` further on each next shard."""
        b = context.builder
        drift = b.multiply(context.coordinate(self.dim_axes), b.scalar(_S32, self.new - self.old))
        starts = [b.scalar(_S32, 0)] * len(x.dims)
        starts[self.dim] = b.add(drift, b.scalar(_S32, first)) if first else drift
        return b.dynamic_slice(x, starts, self.local_dims(x.dims))
