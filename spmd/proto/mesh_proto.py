"""MeshProto and references to its axes, as named shardings and replica groups use them."""

from __future__ import annotations

import math

import numpy as np

from spmd.errors import HloParseError
from spmd.limits import MAX_DEVICES, MAX_RANK
from spmd.proto.schema.xla_data import AxisRefProto, MeshAxisProto, MeshProto, SubAxisProto
from spmd.text.lexer import escape
from spmd.text.mesh_text import AxisText, MeshText


def read_mesh(proto: MeshProto | None) -> MeshText:
    if proto is None:
        raise HloParseError("a mesh is missing")
    axes = tuple((axis.name, axis.size) for axis in proto.axes)
    total = math.prod(size for _, size in axes)
    if any(size < 1 for _, size in axes) or total > MAX_DEVICES:
        raise HloParseError("mesh sizes are out of range")
    if len({name for name, _ in axes}) != len(axes):
        raise HloParseError("two mesh axes have one name")
    ids: tuple[int, ...] | None = proto.device_ids or None
    if proto.iota_transform is not None:
        dims, perm = proto.iota_transform.reshape_dims, proto.iota_transform.transpose_perm
        if any(n < 1 for n in dims) or math.prod(dims) != total:
            raise HloParseError(f"mesh of {total} devices is transposed as {list(dims)}")
        if sorted(perm) != list(range(len(dims))) or len(dims) > MAX_RANK:
            raise HloParseError(f"expected a permutation of {len(dims)} dimensions")
        ids = tuple(np.arange(total).reshape(dims).transpose(perm).reshape(-1).tolist())
    if ids is not None and len(ids) != total:
        raise HloParseError(f"expected {total} device ids, found {len(ids)}")
    return MeshText(axes, ids)


def write_mesh(mesh: MeshText) -> MeshProto:
    proto = MeshProto()
    axes: list[MeshAxisProto] = []
    for name, size in mesh.axes:
        axis = MeshAxisProto()
        axis.name, axis.size = name, size
        axes.append(axis)
    proto.axes = axes
    proto.device_ids = mesh.device_ids or ()
    return proto


def read_axis(proto: AxisRefProto, mesh: MeshText) -> AxisText:
    index = proto.mesh_axis_index
    if not 0 <= index < len(mesh.axes):
        raise HloParseError(f"axis {index} of a mesh with {len(mesh.axes)} axes")
    name, size = mesh.axes[index]
    sub = proto.sub_axis_info
    if sub is None:
        return name, None
    if sub.pre_size < 1 or sub.size < 1 or size % (sub.pre_size * sub.size):
        raise HloParseError(
            f"sub-axis ({sub.pre_size}){sub.size} does not divide axis {name!r} of size {size}"
        )
    return name, (sub.pre_size, sub.size)


def write_axis(axis: AxisText, mesh: MeshText) -> AxisRefProto:
    name, part = axis
    proto = AxisRefProto()
    proto.mesh_axis_index = [known for known, _ in mesh.axes].index(name)
    if part is not None:
        sub = SubAxisProto()
        sub.pre_size, sub.size = part
        proto.sub_axis_info = sub
    return proto


# ---- as text
def mesh_text(mesh: MeshText) -> str:
    axes = ",".join(f"'{escape(name)}'={size}" for name, size in mesh.axes)
    ids = "" if mesh.device_ids is None else f", device_ids=({','.join(map(str, mesh.device_ids))})"
    return f"mesh[{axes}]{ids}"


def axis_text(axis: AxisText) -> str:
    name, part = axis
    return f"'{escape(name)}'" + ("" if part is None else f":({part[0]}){part[1]}")
