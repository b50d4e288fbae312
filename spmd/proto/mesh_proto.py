"""MeshProto and references to its axes, as named shardings and replica groups use them."""

from __future__ import annotations

import math
import re

import numpy as np

from spmd.errors import HloParseError
from spmd.limits import MAX_DEVICES, MAX_RANK
from spmd.proto.implied import Implied
from spmd.proto.schema.xla_data import (
    AxisRefProto,
    IotaTransformProto,
    MeshAxisProto,
    MeshProto,
    SubAxisProto,
)
from spmd.text.lexer import escape
from spmd.text.sharding.mesh_text import AxisText, MeshText

#: Device ids as a transposed iota: ``device_ids=([2,2]T(1,0))``.
_IOTA_IDS = re.compile(
    r"device_ids=\(\s*(?:\[[\d,\s]*\]\s*<=\s*)?\[([\d,\s]*)\]\s*(?:T\(([\d,\s]*)\))?\s*\)"
)


def read_mesh(proto: MeshProto | None, implied: Implied) -> tuple[MeshText, str]:
    """Return the mesh and its text."""
    if proto is None:
        raise HloParseError("a mesh is missing")
    axes = tuple((axis.name, axis.size) for axis in proto.axes)
    total = math.prod(size for _, size in axes)
    if any(size < 1 for _, size in axes) or total > MAX_DEVICES:
        raise HloParseError("mesh sizes are out of range")
    if any("  " in name for name, _ in axes):  # texts join several blanks to one
        raise HloParseError("the name of a mesh axis has several blanks in a row")
    if len({name for name, _ in axes}) != len(axes):
        raise HloParseError("two mesh axes have one name")
    ids: tuple[int, ...] | None = proto.device_ids or None
    listed = None if ids is None else ",".join(map(str, ids))
    if (iota := proto.iota_transform) is not None:
        implied.add(total, "device lists")
        ids = _iota_ids(iota, total)
        listed = f"[{_joined(iota.reshape_dims)}]T({_joined(iota.transpose_perm)})"
    if ids is not None and len(ids) != total:
        raise HloParseError(f"expected {total} device ids, found {len(ids)}")
    sizes = ",".join(f"'{escape(name)}'={size}" for name, size in axes)
    tail = "" if listed is None else f", device_ids=({listed})"
    return MeshText(axes, ids), f"mesh[{sizes}]{tail}"


def _iota_ids(iota: IotaTransformProto, total: int) -> tuple[int, ...]:
    dims, perm = iota.reshape_dims, iota.transpose_perm
    if any(n < 1 for n in dims) or math.prod(dims) != total:
        raise HloParseError(f"a mesh of {total} devices is transposed as {list(dims)}")
    if sorted(perm) != list(range(len(dims))) or len(dims) > MAX_RANK:
        raise HloParseError(f"expected a permutation of {len(dims)} dimensions")
    return tuple(np.arange(total).reshape(dims).transpose(perm).reshape(-1).tolist())


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def write_mesh(mesh: MeshText, text: str = "") -> MeshProto:
    """Return the proto of a mesh. ``text``: the mesh as it was written, which distinguishes a transposed iota from a
    list.
    """
    proto = MeshProto()
    axes: list[MeshAxisProto] = []
    for name, size in mesh.axes:
        axis = MeshAxisProto()
        axis.name, axis.size = name, size
        axes.append(axis)
    proto.axes = axes
    found = _IOTA_IDS.search(text)
    if found is not None:
        dims = tuple(map(int, found[1].split(",")))
        iota = IotaTransformProto()
        iota.reshape_dims = dims
        perm = map(int, found[2].split(",")) if found[2] else range(len(dims))
        iota.transpose_perm = tuple(perm)
        proto.iota_transform = iota
    else:
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


def axis_text(axis: AxisText) -> str:
    """Return ``'x'`` or ``'x':(1)2``."""
    name, part = axis
    return f"'{escape(name)}'" + ("" if part is None else f":({part[0]}){part[1]}")
