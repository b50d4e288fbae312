"""Manual regions (shard_map) of an unpartitioned program: each device takes its slice, and slices are joined again.

Shardy names the axes:  GlobalToLocalShape {in_shardings, manual_axes} -> body -> LocalToGlobalShape {out_shardings, ..}
GSPMD gives devices:    Sharding {devices=[2,1,2]..} -> SPMDFullToShardShape {manual} -> body
                        -> Sharding {manual} -> SPMDShardToFullShape {devices=[2,1,2]..}

Only manual axes slice; a dimension sharded along others is not sliced. Slices are even, as XLA requires.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.errors import ShardingError
from spmd.evaluator.device import Device, Rendezvous, Steps
from spmd.evaluator.manual_mesh import (
    FULL_TO_SHARD,
    GLOBAL_TO_LOCAL,
    LOCAL_TO_GLOBAL,
    SHARD_TO_FULL,
    ManualDevices,
    axis_part,
    coordinates,
    manual_axes_of,
)
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of, packed, part, tuple_of
from spmd.hlo.instruction import HloInstruction
from spmd.mesh import TensorSharding
from spmd.ops.custom_call import custom_call_target
from spmd.sharding import HloSharding, SubgroupType
from spmd.text.sharding.shardy_text import parse_sharding_per_value

MANUAL_TARGETS = (GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL, FULL_TO_SHARD, SHARD_TO_FULL)

#: Position of a device's slice: (index, count) along each dimension.
ShardPosition = tuple[tuple[int, int], ...]


def evaluate_manual(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    """Enter or leave a manual region on one of its devices."""
    target = custom_call_target(instruction)
    manual = device.session.manual
    if target == GLOBAL_TO_LOCAL:
        positions = _named_positions(instruction, "xla.sdy.in_shardings", manual, device.id)
        return packed(_slices(arrays_of(operands), positions), instruction.shape)
    if target == FULL_TO_SHARD:
        full, shard = instruction.operand(0), instruction.dims
        position = _shard_position(full.sharding, full.dims, shard, device.id)
        return _slices(arrays_of(operands), [position])[0]
    if target == LOCAL_TO_GLOBAL:
        members = _peers_along(manual, manual_axes_of(instruction), instruction, device.id)
        positions_of = [
            _named_positions(instruction, "xla.sdy.out_shardings", manual, member)
            for member in members
        ]
    else:
        members = _peers_in_tiles(instruction, manual, device.id)
        shard = instruction.operand(0).dims
        positions_of = [
            [_shard_position(instruction.sharding, instruction.dims, shard, member)]
            for member in members
        ]

    def combine(payloads: Sequence[Value]) -> Sequence[Value]:
        results = _glue([arrays_of(tuple_of(p)) for p in payloads], positions_of)
        return [packed(results, instruction.shape)] * len(members)

    return (yield Rendezvous(instruction, members, operands, combine))


def _slices(arrays: Sequence[NDArray], positions: Sequence[ShardPosition]) -> list[NDArray]:
    return [
        part(x, _index(x.shape, position)) for x, position in zip(arrays, positions, strict=True)
    ]


def _index(dims: Sequence[int], position: ShardPosition) -> tuple[slice, ...]:
    index = []
    for size, (part_index, count) in zip(dims, position, strict=True):
        if size % count:
            raise ShardingError(
                f"a manual region divides a dimension of {size} into {count} equal parts"
            )
        share = size // count
        index.append(slice(part_index * share, (part_index + 1) * share))
    return tuple(index)


def _glue(
    payloads: Sequence[Sequence[NDArray]], positions_of: Sequence[Sequence[ShardPosition]]
) -> list[NDArray]:
    """Join every member's parts to full arrays; of several copies of a part the first member's is used."""
    results = []
    for k, (first, position) in enumerate(zip(payloads[0], positions_of[0], strict=True)):
        dims = [size * count for size, (_, count) in zip(first.shape, position, strict=True)]
        full = np.empty(dims, first.dtype)
        for parts, positions in reversed(list(zip(payloads, positions_of, strict=True))):
            full[_index(dims, positions[k])] = parts[k]
        results.append(full)
    return results


# ---- Shardy
def _shardings(instruction: HloInstruction, key: str) -> tuple[TensorSharding, ...]:
    text = instruction.annotations.frontend(key)
    if text is None:
        raise ShardingError(f"{instruction!r} carries no {key}")
    return parse_sharding_per_value(text)


def _named_positions(
    instruction: HloInstruction, key: str, manual: ManualDevices, device: int
) -> list[ShardPosition]:
    """Return one position per sharding: only axes over which the region is manual divide."""
    axes = manual_axes_of(instruction)
    return [_named_position(s, axes, manual, device) for s in _shardings(instruction, key)]


def _named_position(
    sharding: TensorSharding, axes: Sequence[str], manual: ManualDevices, device: int
) -> ShardPosition:
    mesh = manual.mesh_of(sharding)
    if not mesh.axes:
        return ((0, 1),) * len(sharding.dims)
    at = coordinates(mesh, device)
    position = []
    for dimension in sharding.dims:
        index, count = 0, 1
        for ref in dimension.axes:
            if ref.name in axes:
                inner, size = axis_part(mesh, ref, at[ref.name])
                index, count = index * size + inner, count * size
        position.append((index, count))
    return tuple(position)


def _peers_along(
    manual: ManualDevices, axes: Sequence[str], instruction: HloInstruction, device: int
) -> tuple[int, ...]:
    """Return the devices that differ from ``device`` only along ``axes``."""
    shardings = _shardings(instruction, "xla.sdy.out_shardings")
    if not shardings:
        return (device,)
    mesh = manual.mesh_of(shardings[0])
    mine = coordinates(mesh, device)

    def fixed(at: dict[str, int]) -> dict[str, int]:
        return {name: position for name, position in at.items() if name not in axes}

    return tuple(d for d in manual.ids if fixed(coordinates(mesh, d)) == fixed(mine))


# ---- GSPMD
def _shard_position(
    sharding: HloSharding | None, full: Sequence[int], shard: Sequence[int], device: int
) -> ShardPosition:
    """Return the position of the shard of ``device`` in the full value.

    A dimension may be divided further than the region divides it, along axes that are not manual: these are minor.
    """
    counts = [f // s if s else 1 for f, s in zip(full, shard, strict=True)]
    if all(count == 1 for count in counts):
        return tuple((0, 1) for _ in counts)
    if sharding is None or not sharding.is_tiled:
        raise ShardingError(
            f"a manual region of shape {list(shard)} of {list(full)} needs a tiled sharding, found {sharding}"
        )
    position = _tile_position(sharding, device)
    return tuple(
        (at // (tiles // count), count)
        for at, tiles, count in zip(position, sharding.tile_dims, counts, strict=False)
    )


def _tile_position(sharding: HloSharding, device: int) -> tuple[int, ...]:
    """Return the index of ``device`` in the tile assignment, subgroup dimensions included."""
    if sharding.tiles is None:
        raise ShardingError(f"{sharding} has no tiles")
    found = np.argwhere(sharding.tiles.device_ids() == device)
    if len(found) != 1:
        raise ShardingError(f"device {device} is not in {sharding}")
    return tuple(int(i) for i in found[0])


def _peers_in_tiles(
    instruction: HloInstruction, manual: ManualDevices, device: int
) -> tuple[int, ...]:
    """Return all devices; if the result stays manual over some axes, those in the same manual subgroup."""
    sharding = instruction.sharding
    if sharding is None or SubgroupType.MANUAL not in sharding.subgroup_types:
        return manual.ids
    rank = len(sharding.tile_dims)
    manual_dims = [
        rank + i for i, kind in enumerate(sharding.subgroup_types) if kind is SubgroupType.MANUAL
    ]
    mine = _tile_position(sharding, device)
    return tuple(
        d for d in manual.ids if all(_tile_position(sharding, d)[k] == mine[k] for k in manual_dims)
    )
