"""OpSharding: replicated, maximal, manual, tiled (lists and iota), tuples; named ones in named_sharding_proto."""

from __future__ import annotations

import math
from dataclasses import replace

from spmd.device import IotaTile
from spmd.errors import HloParseError
from spmd.proto.enums import (
    SHARD_GROUP_TYPES,
    SHARDING_KINDS,
    SHARDING_TUPLE,
    SUBGROUP_TYPES,
)
from spmd.proto.groups_proto import checked_iota
from spmd.proto.implied import Implied
from spmd.proto.metadata_proto import metadata_of_text, metadata_text
from spmd.proto.named_sharding_proto import read_named_sharding, write_named_sharding
from spmd.proto.schema.xla_data import OpShardingProto
from spmd.sharding import HloSharding, ShardingKind, SubgroupType, TileAssignment


# ---- reading
def read_sharding(proto: OpShardingProto, implied: Implied) -> HloSharding:
    if proto.type == SHARDING_TUPLE and proto.named_sharding is None:
        return HloSharding.tuple_of(
            tuple(_read_single(part, implied) for part in proto.tuple_shardings)
        )
    return _read_single(proto, implied)


def _read_single(proto: OpShardingProto, implied: Implied) -> HloSharding:
    """Read a sharding that is no tuple: the elements of a tuple sharding are those of its leaves."""
    if proto.named_sharding is not None:
        return read_named_sharding(proto.named_sharding, implied)
    kind = SHARDING_KINDS.value(proto.type)
    if kind is ShardingKind.TUPLE:
        raise HloParseError("a tuple sharding holds another one; leaves stand in one list")
    if kind is ShardingKind.TILED:
        sharding = _read_tiled(proto)
    elif kind is ShardingKind.MAXIMAL:
        if len(proto.tile_assignment_devices) != 1:
            raise HloParseError("a maximal sharding names one device")
        sharding = HloSharding.maximal(proto.tile_assignment_devices[0])
    else:
        sharding = HloSharding(kind)
    return _with_suffix(sharding, proto)


def _read_tiled(proto: OpShardingProto) -> HloSharding:
    dims, devices = proto.tile_assignment_dimensions, proto.tile_assignment_devices
    if proto.iota_reshape_dims:
        if devices:
            raise HloParseError("a sharding has both a device list and an iota")
        iota = checked_iota(dims, proto.iota_reshape_dims, proto.iota_transpose_perm)
        if math.prod(iota.dims) == 1:
            return HloSharding.replicated()
        tiles = TileAssignment(iota)
    else:
        if not dims or any(n < 1 for n in dims) or math.prod(dims) != len(devices):
            raise HloParseError(
                f"expected a device for each tile of {list(dims)}, found {len(devices)}"
            )
        if len(devices) == 1:
            return HloSharding.replicated()
        tiles = TileAssignment(IotaTile.of(dims), devices)
    subgroups = tuple(map(SUBGROUP_TYPES.value, proto.last_tile_dims))
    if proto.replicate_on_last_tile_dim:
        if subgroups:
            raise HloParseError("a sharding gives its last tile dimension two meanings")
        subgroups = (SubgroupType.REPLICATED,)
    if len(subgroups) > len(dims):
        raise HloParseError(f"{len(subgroups)} subgroup types for {len(dims)} tile dimensions")
    return HloSharding.tiled(tiles, subgroups)


def _with_suffix(sharding: HloSharding, proto: OpShardingProto) -> HloSharding:
    metadata = list(proto.metadata)
    if metadata:
        sharding = replace(sharding, metadata=metadata_text(metadata))
    if proto.is_shard_group:
        kind = SHARD_GROUP_TYPES.value(proto.shard_group_type)
        sharding = replace(sharding, group=f"{kind} {proto.shard_group_id}")
    return sharding


# ---- writing
def write_sharding(sharding: HloSharding) -> OpShardingProto:
    proto = OpShardingProto()
    if sharding.as_written:
        proto.named_sharding = write_named_sharding(sharding)
        return proto
    proto.type = SHARDING_KINDS.number(sharding.kind)
    if sharding.is_tuple:
        proto.tuple_shardings = [write_sharding(element) for element in sharding.elements]
    elif sharding.kind is ShardingKind.MAXIMAL:
        proto.tile_assignment_dimensions = (1,)
        proto.tile_assignment_devices = (sharding.device,)
    elif sharding.tiles is not None:
        _write_tiles(proto, sharding, sharding.tiles)
    proto.metadata = metadata_of_text(sharding.metadata)
    if sharding.group:
        kind, _, number = sharding.group.partition(" ")
        proto.is_shard_group = True
        proto.shard_group_id = int(number)
        proto.shard_group_type = SHARD_GROUP_TYPES.number(kind)
    return proto


def _write_tiles(proto: OpShardingProto, sharding: HloSharding, tiles: TileAssignment) -> None:
    proto.tile_assignment_dimensions = tiles.dims
    if tiles.devices is not None:
        proto.tile_assignment_devices = tiles.devices
    else:
        proto.iota_reshape_dims = tiles.iota.reshape_dims
        proto.iota_transpose_perm = tiles.iota.transpose_perm
    if sharding.subgroup_types == (SubgroupType.REPLICATED,):
        proto.replicate_on_last_tile_dim = True
    else:
        proto.last_tile_dims = tuple(map(SUBGROUP_TYPES.number, sharding.subgroup_types))
