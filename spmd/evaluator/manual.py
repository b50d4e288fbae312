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
from spmd.evaluator.device import Device, Meeting, Steps
from spmd.evaluator.manual_mesh import (
    FULL_TO_SHARD,
    GLOBAL_TO_LOCAL,
    LOCAL_TO_GLOBAL,
    SHARD_TO_FULL,
    ManualDevices,
    axis_part,
    coordinates,
    manual_axes_of,
    target_of,
)
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of, packed, part, tuple_of
from spmd.hlo.instruction import HloInstruction
from spmd.mesh import TensorSharding
from spmd.sharding import HloSharding, SubgroupType
from spmd.text.sharding.shardy_text import parse_sharding_per_value

MANUAL_TARGETS = (GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL, FULL_TO_SHARD, SHARD_TO_FULL)

#: Position of a device's slice: (index, count) along each dimension.
Place = tuple[tuple[int, int], ...]


def evaluate_manual(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    """Enter or leave a manual region on one of its devices."""
    target = target_of(instruction)
    manual = device.session.manual
    if target == GLOBAL_TO_LOCAL:
        places = _named_places(instruction, "xla.sdy.in_shardings", manual, device.id)
        return packed(_slices(arrays_of(operands), places), instruction.shape)
    if target == FULL_TO_SHARD:
        full, shard = instruction.operand(0), instruction.dims
        place = _tile_place(full.sharding, full.dims, shard, device.id)
        return _slices(arrays_of(operands), [place])[0]
    if target == LOCAL_TO_GLOBAL:
        members = _peers_along(manual, manual_axes_of(instruction), instruction, device.id)
        places_of = [
            _named_places(instruction, "xla.sdy.out_shardings", manual, member)
            for member in members
        ]
    else:
        members = _peers_in_tiles(instruction, manual, device.id)
        shard = instruction.operand(0).dims
        places_of = [
            [_tile_place(instruction.sharding, instruction.dims, shard, member)]
            for member in members
        ]

    def combine(payloads: Sequence[Value]) -> Sequence[Value]:
        results = _glue([arrays_of(tuple_of(p)) for p in payloads], places_of)
        return [packed(results, instruction.shape)] * len(members)

    return (yield Meeting(instruction, members, operands, combine))


def _slices(arrays: Sequence[NDArray], places: Sequence[Place]) -> list[NDArray]:
    return [part(x, _index(x.shape, place)) for x, place in zip(arrays, places, strict=True)]


def _index(dims: Sequence[int], place: Place) -> tuple[slice, ...]:
    index = []
    for size, (position, count) in zip(dims, place, strict=True):
        if size % count:
            raise ShardingError(
                f"a manual region divides a dimension of {size} into {count} equal parts"
            )
        share = size // count
        index.append(slice(position * share, (position + 1) * share))
    return tuple(index)


def _glue(
    payloads: Sequence[Sequence[NDArray]], places_of: Sequence[Sequence[Place]]
) -> list[NDArray]:
    """Join every member's parts to full arrays; of several copies of a part the first member's is used."""
    results = []
    for k, (first, place) in enumerate(zip(payloads[0], places_of[0], strict=True)):
        dims = [size * count for size, (_, count) in zip(first.shape, place, strict=True)]
        whole = np.empty(dims, first.dtype)
        for parts, places in reversed(list(zip(payloads, places_of, strict=True))):
            whole[_index(dims, places[k])] = parts[k]
        results.append(whole)
    return results


# ---- Shardy
def _shardings(instruction: HloInstruction, key: str) -> tuple[TensorSharding, ...]:
    text = instruction.annotations.frontend(key)
    if text is None:
        raise ShardingError(f"{instruction!r} carries no {key}")
    return parse_sharding_per_value(text)


def _named_places(
    instruction: HloInstruction, key: str, manual: ManualDevices, device: int
) -> list[Place]:
    """Return one position per sharding: only axes over which the region is manual divide."""
    axes = manual_axes_of(instruction)
    return [_named_place(s, axes, manual, device) for s in _shardings(instruction, key)]


def _named_place(
    sharding: TensorSharding, axes: Sequence[str], manual: ManualDevices, device: int
) -> Place:
    mesh = manual.mesh_of(sharding)
    if not mesh.axes:
        return ((0, 1),) * len(sharding.dims)
    at = coordinates(mesh, device)
    place = []
    for dimension in sharding.dims:
        index, count = 0, 1
        for ref in dimension.axes:
            if ref.name in axes:
                inner, size = axis_part(mesh, ref, at[ref.name])
                index, count = index * size + inner, count * size
        place.append((index, count))
    return tuple(place)


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
def _tile_place(
    sharding: HloSharding | None, full: Sequence[int], shard: Sequence[int], device: int
) -> Place:
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
    kept = [
        rank + i for i, kind in enumerate(sharding.subgroup_types) if kind is SubgroupType.MANUAL
    ]
    mine = _tile_position(sharding, device)
    return tuple(
        d for d in manual.ids if all(_tile_position(sharding, d)[k] == mine[k] for k in kept)
    )
