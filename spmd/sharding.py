"""HloSharding: how the devices of a module divide one value.

Kinds follow XLA: replicated, maximal (one device), manual, unknown, unreduced, tiled and tuple.
The iota form of a tile assignment stays symbolic, so nothing here grows with the number of devices
until ``device_ids`` is asked for.
"""

from __future__ import annotations

import math
from enum import Enum

import numpy as np

from spmd.device import IotaTile
from spmd.errors import ShardingError, UnsupportedError
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, Shape, TupleShape, leaves


class ShardingKind(Enum):
    REPLICATED = "replicated"
    MAXIMAL = "maximal"
    MANUAL = "manual"
    UNKNOWN = "unknown"
    UNREDUCED = "unreduced"
    TILED = "tiled"
    TUPLE = "tuple"


class SubgroupType(Enum):
    """Kind of a trailing tile dimension (``last_tile_dims``): replicated, manual or unreduced."""

    REPLICATED = "replicated"
    MANUAL = "manual"
    UNREDUCED = "unreduced"


@dataclass(frozen=True, slots=True)
class TileAssignment:
    """Device of each tile: iota form, or an explicit list (``devices``) of the same length."""

    iota: IotaTile
    devices: tuple[int, ...] | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        return self.iota.dims

    @property
    def num_devices(self) -> int:
        return math.prod(self.iota.dims)

    def device_ids(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return the device ids as an array of shape ``dims``."""
        if self.devices is not None:
            return np.asarray(self.devices, np.int64).reshape(self.dims)
        return self.iota.ids()

    def __str__(self) -> str:
        if self.devices is None:
            return str(self.iota)
        return f"[{','.join(map(str, self.dims))}]{','.join(map(str, self.devices))}"


@dataclass(frozen=True, slots=True)
class HloSharding:
    """A sharding of one value.

    For TILED, ``tiles.dims`` has one entry per dimension of the value, then one per entry of ``subgroup_types``.
    ``as_written`` keeps a named (mesh) form for printing; ``metadata`` the text inside ``metadata={..}``;
    ``group`` a ``shard_as``/``shard_like`` suffix.
    """

    kind: ShardingKind
    tiles: TileAssignment | None = None
    subgroup_types: tuple[SubgroupType, ...] = ()
    device: int = 0
    elements: tuple[HloSharding, ...] = ()
    as_written: str = ""
    metadata: str = ""
    group: str = ""

    @staticmethod
    def replicated() -> HloSharding:
        return _REPLICATED

    @staticmethod
    def manual() -> HloSharding:
        return _MANUAL

    @staticmethod
    def maximal(device: int) -> HloSharding:
        return HloSharding(ShardingKind.MAXIMAL, device=device)

    @staticmethod
    def tuple_of(elements: tuple[HloSharding, ...]) -> HloSharding:
        """Return the sharding of a tuple value: one entry per leaf, in leaf order."""
        return HloSharding(ShardingKind.TUPLE, elements=elements)

    @staticmethod
    def tiled(tiles: TileAssignment, subgroup_types: tuple[SubgroupType, ...] = ()) -> HloSharding:
        return HloSharding(ShardingKind.TILED, tiles=tiles, subgroup_types=subgroup_types)

    @property
    def is_tuple(self) -> bool:
        return self.kind is ShardingKind.TUPLE

    @property
    def is_tiled(self) -> bool:
        return self.kind is ShardingKind.TILED

    @property
    def tile_dims(self) -> tuple[int, ...]:
        """Shards per dimension of the value (without subgroup dimensions); TILED only."""
        if self.tiles is None:
            raise ShardingError(f"{self} has no tiles")
        return self.tiles.dims[: len(self.tiles.dims) - len(self.subgroup_types)]

    @property
    def num_devices(self) -> int | None:
        """Devices the sharding names; None when it names none."""
        if self.tiles is not None:
            return self.tiles.num_devices
        counts = [n for e in self.elements if (n := e.num_devices) is not None]
        return max(counts) if counts else None

    def leaf_shardings(self, shape: Shape) -> tuple[HloSharding, ...]:
        """Return one sharding per leaf of ``shape``; a single sharding on a tuple holds for every leaf.

        JAX and XLA give the empty tuple one element (the device of a callback), which belongs to no leaf.
        """
        count = sum(1 for _ in leaves(shape))
        if self.kind is ShardingKind.TUPLE:
            if count == 0 and len(self.elements) == 1:
                return ()
            if len(self.elements) != count:
                raise ShardingError(
                    f"tuple sharding has {len(self.elements)} elements, the shape {shape} has {count} leaves"
                )
            return self.elements
        return (self,) * count

    def shard_shape(self, shape: Shape) -> Shape:
        """Return the per-device shape: every dimension divided by its number of shards, rounded up."""
        if isinstance(shape, TupleShape):
            parts = iter(self.leaf_shardings(shape))
            return _shard_tuple(shape, parts)
        if not isinstance(shape, ArrayShape) or self.kind is not ShardingKind.TILED:
            return shape
        tile = self.tile_dims
        if len(tile) != shape.rank:
            raise ShardingError(
                f"sharding {self} has {len(tile)} dimensions, the shape {shape} has {shape.rank}"
            )
        if shape.is_unbounded:
            raise UnsupportedError(f"the unbounded dimension of {shape} cannot be partitioned")
        return shape.with_dims(tuple(-(-n // s) for n, s in zip(shape.dims, tile, strict=True)))

    def __str__(self) -> str:
        if self.kind is ShardingKind.TUPLE:
            # XLA writes the position before every fifth element.
            parts = [
                f"/*index={i}*/{element}" if i and i % 5 == 0 else str(element)
                for i, element in enumerate(self.elements)
            ]
            return f"{{{', '.join(parts)}}}"
        tail = f" {self.group}" if self.group else ""
        if self.metadata:
            tail += f" metadata={{{self.metadata}}}"
        if self.as_written:
            return f"{{{self.as_written}{tail}}}"
        if self.kind is ShardingKind.MAXIMAL:
            return f"{{maximal device={self.device}{tail}}}"
        if self.kind is not ShardingKind.TILED:
            return f"{{{self.kind.value}{tail}}}"
        text = f"devices={self.tiles}"
        if self.subgroup_types == (SubgroupType.REPLICATED,):
            text += " last_tile_dim_replicate"
        elif self.subgroup_types:
            text += f" last_tile_dims={{{', '.join(t.value for t in self.subgroup_types)}}}"
        return f"{{{text}{tail}}}"


def _shard_tuple(shape: TupleShape, parts: object) -> Shape:
    elements: list[Shape] = []
    for element in shape.elements:
        if isinstance(element, TupleShape):
            elements.append(_shard_tuple(element, parts))
        else:
            elements.append(next(parts).shard_shape(element))  # type: ignore[call-overload]
    return TupleShape(tuple(elements))


_REPLICATED = HloSharding(ShardingKind.REPLICATED)
_MANUAL = HloSharding(ShardingKind.MANUAL)
