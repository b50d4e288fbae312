"""Permuted device orders: meshes over the devices in an order other than 0..n-1.

The partitioner numbers devices by position: axes are digits of the position. If the module's mesh has its own order,
device numbers are replaced by positions before partitioning and restored afterwards:

    device_ids=(3, 2, 1, 0)     position 0 is device 3; {devices=[4]3,2,1,0} reads {devices=[4]<=[4]} by position

If the module has meshes of several orders, the order of the leading mesh counts. Shardings over the other meshes become
lists, which the module's axes cannot express (inexpressible_shardings.py).

Groups and pairs of collectives are lists in either numbering. ``partition-id`` is a device number; a table converts it
to a position where one is needed (the only data here with one entry per device).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from partitioner.annotations.reader import SDY_MESHES, SDY_SHARDING, without_shardings
from partitioner.devices.axes import as_iota, common_axes
from partitioner.devices.axis_precedence import (
    by_precedence,
    region_shardings,
    shardings_by_precedence,
)
from spmd.builder import Builder
from spmd.device import CollectiveGroupMode, IotaTile, ReplicaGroups
from spmd.errors import ShardingError
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.iota import recognise_iota
from spmd.literal import Literal
from spmd.mesh import Mesh, TensorSharding
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.groups import device_groups, group_mode
from spmd.passes.rewrite import redirect
from spmd.shape import ArrayShape, PrimitiveType
from spmd.sharding import HloSharding, ShardingKind, TileAssignment
from spmd.source_target_pairs import ListedPairs
from spmd.text.sharding.module_meshes import declared_meshes, in_place_meshes
from spmd.text.sharding.shardy_text import format_meshes, parse_shardings

#: Device at each position.
Order = tuple[int, ...]


def device_order(module: HloModule, num_devices: int) -> Order | None:
    """Return the device order of the module's leading mesh, or else of its first listed sharding; None for 0..n-1."""
    declared = by_precedence(module, declared_meshes(module))
    for mesh in (*in_place_meshes(module).values(), *declared.values()):
        if mesh.num_devices == num_devices and not mesh.is_maximal:
            return _unless_counted(_ids(mesh))
    tiled = [s.tiles for s in region_shardings(module) if s.tiles is not None]
    for tiles in tiled or [s.tiles for s in shardings_by_precedence(module) if s.tiles is not None]:
        listed = tiles.devices
        if listed is not None and len(listed) == num_devices and recognise_iota(listed) is None:
            return _unless_counted(listed)
    return None


def list_other_orders(module: HloModule) -> None:
    """Replace, in place, Shardy shardings over meshes with another device order than the first mesh's by lists of
    devices.
    """
    meshes = by_precedence(module, declared_meshes(module))
    most_devices = max((mesh.num_devices for mesh in meshes.values()), default=0)
    covering = [mesh for mesh in meshes.values() if mesh.num_devices == most_devices > 1]
    others = {mesh.name for mesh in covering if _ids(mesh) != _ids(covering[0])}
    if not others:
        return
    for instruction in module.all_instructions():
        text = instruction.annotations.frontend(SDY_SHARDING)
        if text is None:
            continue
        found = parse_shardings(text)
        if any(sharding.mesh in others for sharding in found):
            listed = tuple(_listed(sharding, meshes) for sharding in found)
            is_array = isinstance(instruction.shape, ArrayShape)
            instruction.sharding = listed[0] if is_array else HloSharding.tuple_of(listed)
            instruction.annotations = without_shardings(instruction.annotations)


def _ids(mesh: Mesh) -> Order:
    return tuple(mesh.device_ids or range(mesh.num_devices))


def _listed(sharding: TensorSharding, meshes: dict[str, Mesh]) -> HloSharding:
    mesh = sharding.mesh if isinstance(sharding.mesh, Mesh) else meshes[sharding.mesh]
    refs = [ref for dim in sharding.dims for ref in dim.axes]
    axes = common_axes(mesh.num_devices, [], [(mesh, refs)])
    dims = tuple(
        tuple(a for ref in d.axes for a in axes.axes_of_ref(mesh, ref)) for d in sharding.dims
    )
    return renamed_sharding(axes.sharding(dims), _ids(mesh))


def rename_to_positions(module: HloModule, order: Order) -> None:
    """Number partitions by position, in place: in shardings, groups, pairs and meshes. ``partition-id`` becomes
    ``order[partition-id]``.
    """
    positions = _inverse(order)
    _rename(module, positions)
    _rewrite_meshes(module, order)
    for computation in module.computations_post_order():
        _look_up_partition_id(computation, order)


def rename_to_devices(module: HloModule, order: Order) -> None:
    """Restore device numbers in a partitioned module, in place."""
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


def _rename(module: HloModule, names: Order) -> None:
    """Rename partition i to ``names[i]`` in every sharding and collective, in all replicas equally."""
    for instruction in module.all_instructions():
        if instruction.sharding is not None:
            instruction.sharding = renamed_sharding(instruction.sharding, names)
        attrs = instruction.attrs
        if isinstance(attrs, CollectiveAttrs):
            instruction.attrs = _renamed_groups(instruction, attrs, names, module.replica_count)
        elif isinstance(attrs, CollectivePermuteAttrs) and attrs.channel_id is not None:
            pairs = ListedPairs(tuple((names[a], names[b]) for a, b in attrs.source_target_pairs))
            instruction.attrs = replace(attrs, source_target_pairs=pairs)


def _renamed_groups(
    instruction: HloInstruction, attrs: CollectiveAttrs, names: Order, replicas: int
) -> CollectiveAttrs:
    """Return the groups with renamed partitions. Cross-replica groups name none; groups across both list device ids."""
    mode = group_mode(instruction)
    if mode is CollectiveGroupMode.CROSS_REPLICA:
        return attrs
    if mode is CollectiveGroupMode.CROSS_PARTITION:
        groups = attrs.replica_groups.expand(len(names))
        named = tuple(tuple(names[i] for i in group) for group in groups)
        return replace(attrs, replica_groups=ReplicaGroups(groups=named))
    count = len(names)
    named = tuple(
        tuple(device // count * count + names[device % count] for device in group)
        for group in device_groups(instruction, count, replicas)
    )
    return replace(attrs, replica_groups=ReplicaGroups(groups=named), use_global_device_ids=True)


def renamed_sharding(sharding: HloSharding, names: Order) -> HloSharding:
    """Return the same tiles on other devices: id i becomes ``names[i]``."""
    if sharding.is_tuple:
        elements = tuple(renamed_sharding(e, names) for e in sharding.elements)
        return replace(sharding, elements=elements)
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
    """Renumber meshes of this order from 0. A mesh of another order stays, in positions; its reader refuses it."""
    meshes = declared_meshes(module)
    if not meshes:
        return
    positions = _inverse(order)
    for name, mesh in meshes.items():
        if mesh.is_maximal and mesh.device_ids is not None and mesh.device_ids[0] < len(order):
            meshes[name] = replace(mesh, device_ids=(positions[mesh.device_ids[0]],))
        elif len(order) == mesh.num_devices:
            ids = tuple(positions[i] for i in mesh.device_ids or range(mesh.num_devices))
            counted = ids == tuple(range(len(ids)))
            meshes[name] = replace(mesh, device_ids=None if counted else ids)
    module.frontend_attributes = tuple(
        (key, format_meshes(meshes) if key == SDY_MESHES else value)
        for key, value in module.frontend_attributes
    )


def _look_up_partition_id(computation: HloComputation, table: Order) -> None:
    """Replace uses of ``partition-id`` by ``table[partition-id]``."""
    for instruction in list(computation.with_opcode(Opcode.PARTITION_ID)):
        users = instruction.users
        was_root = instruction.is_root
        found = look_up(Builder(computation), table, instruction)
        redirect(users, instruction, found)
        if was_root:
            computation.root = found


def look_up(b: Builder, table: Sequence[int], index: HloInstruction) -> HloInstruction:
    """Return ``table[index]`` (u32[])."""
    u32 = PrimitiveType.U32
    listed = b.constant(Literal.of(ArrayShape(u32, (len(table),)), tuple(table)))
    return b.reshape(b.dynamic_slice(listed, [index], (1,)), ())
