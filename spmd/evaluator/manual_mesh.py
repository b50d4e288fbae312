"""Devices of a module's manual regions (shard_map), as the unpartitioned evaluation simulates them.

Only the manual axes matter: along the others a region's values are global, so one device represents all of them (the
one at position 0). If collectives cross these axes, or the regions are written in GSPMD form, all devices run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from spmd.errors import ShardingError
from spmd.evaluator.device import Device
from spmd.evaluator.value import Operands, PerDevice
from spmd.hlo.collective_opcodes import COLLECTIVES
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.mesh import AxisRef, Mesh, TensorSharding
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.custom_call import custom_call_target
from spmd.ops.groups import device_groups
from spmd.sharding import SubgroupType
from spmd.text.sharding.module_meshes import meshes_of
from spmd.text.sharding.shardy_text import parse_manual_axes

if TYPE_CHECKING:
    from spmd.evaluator.session import Session

#: Entry and exit calls of manual regions: Shardy's and GSPMD's names.
GLOBAL_TO_LOCAL = "xla.sdy.GlobalToLocalShape"
LOCAL_TO_GLOBAL = "xla.sdy.LocalToGlobalShape"
FULL_TO_SHARD = "SPMDFullToShardShape"
SHARD_TO_FULL = "SPMDShardToFullShape"

#: Name of all axes over which a GSPMD region is manual; they have no names of their own.
_UNNAMED = "<manual>"

_PER_DEVICE_OPCODES = frozenset(
    {*COLLECTIVES, Opcode.PARTITION_ID, Opcode.RECV_DONE, Opcode.REPLICA_ID, Opcode.SEND}
)


def differs_by_device(instruction: HloInstruction) -> bool:
    """Return whether the instruction's result differs by device, whatever its operands are."""
    return instruction.opcode in _PER_DEVICE_OPCODES or custom_call_target(instruction) in (
        GLOBAL_TO_LOCAL,
        FULL_TO_SHARD,
    )


def manual_axes_of(instruction: HloInstruction) -> tuple[str, ...]:
    text = instruction.annotations.frontend("xla.sdy.manual_axes")
    if text is None:
        raise ShardingError(f"{instruction!r} carries no xla.sdy.manual_axes")
    return parse_manual_axes(text)


@dataclass(frozen=True, slots=True)
class ManualDevices:
    """Simulated devices. ``ids``: the devices that run; ``axes``: every axis over which some region is manual;
    ``meshes`` by name.
    """

    ids: tuple[int, ...]
    axes: frozenset[str]
    meshes: dict[str, Mesh]
    num_partitions: int

    @staticmethod
    def of(module: HloModule | None) -> ManualDevices:
        if module is None:
            return ManualDevices((0,), frozenset(), {}, 1)
        meshes = meshes_of(module)
        shardy = [
            i
            for i in module.all_instructions()
            if custom_call_target(i) in (GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL)
        ]
        gspmd = [
            i
            for i in module.all_instructions()
            if custom_call_target(i) in (FULL_TO_SHARD, SHARD_TO_FULL)
        ]
        count = _device_count(module, meshes, gspmd)
        everyone = tuple(range(count))
        axes = frozenset(axis for i in shardy for axis in manual_axes_of(i))
        named = [m for m in meshes.values() if m.axes]
        if gspmd or not shardy or len(named) != 1:
            axes |= {_UNNAMED} if gspmd else frozenset()
            return ManualDevices(everyone, axes, meshes, count)
        chosen = _representatives(named[0], axes)
        ids = chosen if _groups_stay_inside(module, chosen, count) else everyone
        return ManualDevices(ids, axes, meshes, count)

    def device(self, id_: int, session: Session) -> Device:
        return Device(id_, 1, self.num_partitions, session)

    def axes_after(self, instruction: HloInstruction, operands: Operands) -> frozenset[str]:
        """Return the axes along which the result may differ between devices; empty outside every region."""
        before: frozenset[str] = frozenset()
        for operand in operands:
            before |= operand.axes if isinstance(operand, PerDevice) else frozenset()
        target = custom_call_target(instruction)
        if target == GLOBAL_TO_LOCAL:
            return before | frozenset(manual_axes_of(instruction))
        if target == LOCAL_TO_GLOBAL:
            return before - frozenset(manual_axes_of(instruction))
        if target == FULL_TO_SHARD:
            return before | {_UNNAMED}
        if target == SHARD_TO_FULL:
            return before if _is_partly_manual(instruction) else frozenset()
        if differs_by_device(instruction) and not _has_groups_of_one(instruction):
            return before | (self.axes or frozenset({_UNNAMED}))
        return before

    def mesh_of(self, sharding: TensorSharding) -> Mesh:
        """Return the sharding's mesh. Raises ShardingError if the module does not name it."""
        mesh = sharding.mesh_in(self.meshes)
        if mesh is None:
            raise ShardingError(f"{sharding}: the module has no mesh @{sharding.mesh}")
        return mesh


def _has_groups_of_one(instruction: HloInstruction) -> bool:
    """Return whether it is a collective over groups of one device each, as over a mesh's axis of size one."""
    if not isinstance(instruction.attrs, CollectiveAttrs):
        return False
    groups = instruction.attrs.replica_groups
    if groups.groups:
        return all(len(group) == 1 for group in groups.groups)
    return groups.group_size(2) == 1


def _is_partly_manual(instruction: HloInstruction) -> bool:
    sharding = instruction.sharding
    return sharding is not None and SubgroupType.MANUAL in sharding.subgroup_types


def _device_count(
    module: HloModule, meshes: dict[str, Mesh], gspmd: Sequence[HloInstruction]
) -> int:
    """Return the number of devices that the header, the meshes, or (in GSPMD form) shardings and collectives name."""
    counts = [module.num_partitions, *(m.num_devices for m in meshes.values())]
    if gspmd:
        for instruction in module.all_instructions():
            sharding = instruction.sharding
            counts.append((sharding.num_devices if sharding is not None else None) or 1)
            counts.append(_named_devices(instruction))
    return max(counts)


def _named_devices(instruction: HloInstruction) -> int:
    """Return one more than the highest device id that a collective names; 1 if it names none."""
    attrs = instruction.attrs
    if isinstance(attrs, CollectiveAttrs) and not attrs.replica_groups.is_all:
        return 1 + max((i for group in attrs.replica_groups.expand(1) for i in group), default=0)
    if isinstance(attrs, CollectivePermuteAttrs):
        return 1 + max(attrs.source_target_pairs.largest, 0)
    return 1


def device_grid(mesh: Mesh) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the device ids by mesh position, one dimension per axis."""
    ids = np.arange(mesh.num_devices) if mesh.device_ids is None else np.asarray(mesh.device_ids)
    return ids.reshape([size for _, size in mesh.axes])


def coordinates(mesh: Mesh, device: int) -> dict[str, int]:
    """Return the position of ``device`` along each axis."""
    found = np.argwhere(device_grid(mesh) == device)
    if len(found) != 1:
        raise ShardingError(f"device {device} is not in mesh {mesh}")
    return {name: int(at) for (name, _), at in zip(mesh.axes, found[0], strict=True)}


def axis_part(mesh: Mesh, ref: AxisRef, position: int) -> tuple[int, int]:
    """Return (index, size) of the (sub-)axis ``ref`` for a position along the entire axis."""
    size = mesh.axis_size(ref.name)
    if size is None:
        raise ShardingError(f"mesh {mesh} has no axis {ref}")
    if ref.sub is None:
        return position, size
    before, part = ref.sub
    return position // (size // (before * part)) % part, part


def _representatives(mesh: Mesh, axes: frozenset[str]) -> tuple[int, ...]:
    index = tuple(slice(None) if name in axes else slice(0, 1) for name, _ in mesh.axes)
    return tuple(sorted(int(i) for i in device_grid(mesh)[index].reshape(-1)))


def _groups_stay_inside(module: HloModule, chosen: Sequence[int], count: int) -> bool:
    """Return whether no collective group holds both a chosen device and one that is not."""
    inside = set(chosen)
    for instruction in module.all_instructions():
        if instruction.opcode in _PER_DEVICE_OPCODES and isinstance(
            instruction.attrs, CollectiveAttrs
        ):
            for group in device_groups(instruction, count, 1):
                if 0 < len(inside.intersection(group)) < len(group):
                    return False
    return True
