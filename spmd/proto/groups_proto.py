"""Replica groups in the three forms of HloInstructionProto: lists, iota, mesh axes."""

from __future__ import annotations

import math

from spmd.device import IotaTile, MeshGroups, ReplicaGroups
from spmd.errors import HloParseError
from spmd.limits import MAX_RANK
from spmd.proto.implied import Implied
from spmd.proto.mesh_proto import (
    axis_text,
    read_axis,
    read_mesh,
    write_axis,
    write_mesh,
)
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import (
    CollectiveDeviceListProto,
    IotaReplicaGroupListProto,
    MeshAxesReplicaGroupListProto,
    ReplicaGroupProto,
)
from spmd.text.sharding.mesh_text import MeshText


def read_replica_groups(proto: HloInstructionProto, implied: Implied) -> ReplicaGroups:
    """Return the groups from the field that holds them, of this version or an older one."""
    if (mesh := proto.mesh_axes_replica_group_list) is not None:
        return _read_mesh_groups(mesh, implied)
    listed = proto.collective_device_list
    iota = proto.iota_collective_device_list
    if iota is None and listed is not None:
        iota = listed.iota_replica_group_list
    if iota is not None:
        dims = (iota.num_replica_groups, iota.num_devices_per_group)
        return ReplicaGroups(
            iota=checked_iota(dims, iota.iota_reshape_dims, iota.iota_transpose_perm)
        )
    groups = proto.replica_groups if listed is None else listed.replica_groups
    return ReplicaGroups(groups=tuple(group.replica_ids for group in groups))


def checked_iota(
    dims: tuple[int, ...], reshape: tuple[int, ...], perm: tuple[int, ...]
) -> IotaTile:
    """Return the iota tile ``dims<=reshape T(perm)``. Checks sizes and permutation as the text reader does."""
    if (
        not dims
        or len(reshape) > MAX_RANK
        or any(n < 1 for n in (*dims, *reshape))
        or math.prod(reshape) != math.prod(dims)
    ):
        raise HloParseError(f"{list(reshape)} and {list(dims)} hold different numbers of devices")
    perm = perm or tuple(range(len(reshape)))
    if sorted(perm) != list(range(len(reshape))):
        raise HloParseError(f"expected a permutation of {len(reshape)} dimensions")
    return IotaTile(dims, reshape, perm)


def _read_mesh_groups(proto: MeshAxesReplicaGroupListProto, implied: Implied) -> ReplicaGroups:
    mesh, written = read_mesh(proto.mesh, implied)
    axes = tuple(read_axis(axis, mesh) for axis in proto.axes)
    text = f"{written} {{{','.join(map(axis_text, axes))}}}"
    return ReplicaGroups(mesh=MeshGroups(mesh.axes, axes, mesh.device_ids, text))


def write_replica_groups(proto: HloInstructionProto, groups: ReplicaGroups) -> None:
    if groups.mesh is not None:
        proto.mesh_axes_replica_group_list = _write_mesh_groups(groups.mesh)
    elif groups.iota is not None:
        proto.iota_collective_device_list = _write_iota(groups.iota)
    else:
        listed = CollectiveDeviceListProto()
        listed.replica_groups = [_write_group(group) for group in groups.groups]
        proto.collective_device_list = listed


def _write_group(ids: tuple[int, ...]) -> ReplicaGroupProto:
    proto = ReplicaGroupProto()
    proto.replica_ids = ids
    return proto


def _write_iota(iota: IotaTile) -> IotaReplicaGroupListProto:
    proto = IotaReplicaGroupListProto()
    proto.num_replica_groups = iota.dims[0]
    proto.num_devices_per_group = math.prod(iota.dims[1:])
    proto.iota_reshape_dims = iota.reshape_dims
    proto.iota_transpose_perm = iota.transpose_perm
    return proto


def _write_mesh_groups(groups: MeshGroups) -> MeshAxesReplicaGroupListProto:
    mesh = MeshText(groups.mesh_axes, groups.device_ids)
    proto = MeshAxesReplicaGroupListProto()
    proto.mesh = write_mesh(mesh, groups.text)
    proto.axes = [write_axis(axis, mesh) for axis in groups.axes]
    return proto
