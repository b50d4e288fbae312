"""Permuted device orders: a mesh laid over the devices in another order than 0..n-1.

The partitioner knows devices by position: axes are digits of the position. A module whose mesh has
an order of its own is
renamed to positions before it is partitioned and back to devices afterwards:

    device_ids=(3, 2, 1, 0)     position 0 is device 3; {devices=[4]3,2,1,0} reads {devices=[4]<=[4]} by position

A collective's groups and pairs are lists of the one or the other; ``partition-id`` is a device, so where a position is
needed it is looked up in a table (the only thing here that has an entry per device).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from partitioner.annotations import SDY_MESHES, module_meshes
from partitioner.axes import as_iota, recognise_iota
from spmd.builder import Builder
from spmd.device import IotaTile, ReplicaGroups
from spmd.errors import ShardingError
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.literal import Literal
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.shape import ArrayShape, PrimitiveType
from spmd.sharding import HloSharding, ShardingKind, TileAssignment
from spmd.text.shardy_text import format_meshes

#: Device at each position.
Order = tuple[int, ...]


def device_order(module: HloModule, num_devices: int) -> Order | None:
    """The order in which the module's mesh, or else its first listed sharding, counts the devices; None for 0..n-1."""
    for mesh in module_meshes(module).values():
        if mesh.device_ids is not None and len(mesh.device_ids) == num_devices:
            return _unless_counted(mesh.device_ids)
    for instruction in module.all_instructions():
        for sharding in _leaves(instruction.sharding):
            tiles = sharding.tiles
            if tiles is None or tiles.devices is None or len(tiles.devices) != num_devices:
                continue
            if recognise_iota(tiles.devices) is None:
                return _unless_counted(tiles.devices)
    return None


def rename_to_positions(module: HloModule, order: Order) -> None:
    """In place: shardings, groups, pairs and meshes count positions; ``partition-id`` becomes the device there."""
    positions = _inverse(order)
    _rename(module, positions)
    _rewrite_meshes(module, order)
    for computation in module.computations_post_order():
        _look_up_partition_id(computation, order)


def rename_to_devices(module: HloModule, order: Order) -> None:
    """In place, a partitioned module: the other way round."""
    _rename(module, order)
    positions = _inverse(order)
    for computation in module.computations_post_order():
        _look_up_partition_id(computation, positions)


def _unless_counted(ids: Sequence[int]) -> Order | None:
    if sorted(ids) != list(range(len(ids))):
        raise ShardingError(
            f"device list {tuple(ids)} does not name each of {len(ids)} devices once"
        )
    return tuple(ids) if any(i != device for i, device in enumerate(ids)) else None


def _inverse(order: Order) -> Order:
    found = [0] * len(order)
    for position, device in enumerate(order):
        found[device] = position
    return tuple(found)


def _leaves(sharding: HloSharding | None) -> Iterator[HloSharding]:
    if sharding is None:
        return
    if not sharding.is_tuple:
        yield sharding
    for element in sharding.elements:
        yield from _leaves(element)


def _rename(module: HloModule, names: Order) -> None:
    """Id i becomes ``names[i]`` in every sharding and collective. Without a channel a collective counts replicas."""
    for instruction in module.all_instructions():
        if instruction.sharding is not None:
            instruction.sharding = _renamed(instruction.sharding, names)
        attrs = instruction.attrs
        if isinstance(attrs, CollectiveAttrs) and attrs.channel_id is not None:
            groups = attrs.replica_groups.expand(len(names))
            named = tuple(tuple(names[i] for i in group) for group in groups)
            instruction.attrs = replace(attrs, replica_groups=ReplicaGroups(groups=named))
        elif isinstance(attrs, CollectivePermuteAttrs) and attrs.channel_id is not None:
            pairs = tuple((names[a], names[b]) for a, b in attrs.source_target_pairs)
            instruction.attrs = replace(attrs, source_target_pairs=pairs)


def _renamed(sharding: HloSharding, names: Order) -> HloSharding:
    if sharding.is_tuple:
        return replace(sharding, elements=tuple(_renamed(e, names) for e in sharding.elements))
    if sharding.kind is ShardingKind.MAXIMAL and sharding.device < len(names):
        return replace(sharding, device=names[sharding.device])
    tiles = sharding.tiles
    if tiles is None or tiles.num_devices != len(names):
        return sharding
    ids = tuple(names[int(i)] for i in tiles.device_ids().reshape(-1))
    listed = TileAssignment(IotaTile.of(tiles.dims), ids)
    compact = recognise_iota(ids)
    named = listed if compact is None else TileAssignment(as_iota(listed))
    return replace(sharding, tiles=named, as_written="")


def _rewrite_meshes(module: HloModule, order: Order) -> None:
    """Meshes of this order count from 0 now; another order stays, in positions, and is refused by whoever reads it."""
    meshes = module_meshes(module)
    if not meshes:
        return
    positions = _inverse(order)
    for name, mesh in meshes.items():
        if len(order) == mesh.num_devices:
            ids = tuple(positions[i] for i in mesh.device_ids or range(mesh.num_devices))
            counted = ids == tuple(range(len(ids)))
            meshes[name] = replace(mesh, device_ids=None if counted else ids)
    module.frontend_attributes = tuple(
        (key, format_meshes(meshes) if key == SDY_MESHES else value)
        for key, value in module.frontend_attributes
    )


def _look_up_partition_id(computation: HloComputation, table: Order) -> None:
    """Uses of ``partition-id`` become uses of ``table[partition-id]``."""
    for instruction in list(computation.with_opcode(Opcode.PARTITION_ID)):
        users = instruction.users
        was_root = instruction.is_root
        found = _entry(Builder(computation), table, instruction)
        for user in users:
            for i, operand in enumerate(user.operands):
                if operand is instruction:
                    user.replace_operand(i, found)
        if was_root:
            computation.root = found


def _entry(b: Builder, table: Order, index: HloInstruction) -> HloInstruction:
    """u32[]: ``table[index]``."""
    u32 = PrimitiveType.U32
    listed = b.constant(Literal.of(ArrayShape(u32, (len(table),)), table))
    return b.reshape(b.dynamic_slice(listed, [index], (1,)), ())
