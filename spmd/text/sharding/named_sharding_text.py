"""The named form of HloSharding, ``mesh['x'=2,'y'=4], [{'x'}, {'y', ?}], replicated={..}``, read into tiles."""

from __future__ import annotations

import math

import numpy as np

from spmd.device import IotaTile
from spmd.sharding import HloSharding, ShardingKind, SubgroupType, TileAssignment
from spmd.text.lexer import Scanner
from spmd.text.sharding.mesh_text import (
    AxisText,
    MeshText,
    SubAxes,
    read_axes,
    read_axis,
    read_mesh,
)

_KEYWORDS = {
    "replicated": ShardingKind.REPLICATED,
    "unreduced": ShardingKind.UNREDUCED,
    "manual": ShardingKind.MANUAL,
}
_AXIS_LISTS = {
    "manual": SubgroupType.MANUAL,
    "unreduced": SubgroupType.UNREDUCED,
    "replicated": SubgroupType.REPLICATED,
}


def read_named_sharding(scanner: Scanner) -> HloSharding:
    """Return the sharding that the mesh notation means; the caller keeps the text (``as_written``).

    Tile dimensions come first, then one subgroup dimension per kind that has devices: manual, unreduced, replicated.
    """
    if scanner.consume_if("maximal_mesh"):
        scanner.expect("[")
        if scanner.consume_if("device_id"):
            scanner.expect("=")
        device = scanner.integer("a device id")
        scanner.expect("]")
        return HloSharding.maximal(device)
    start = scanner.pos
    mesh = read_mesh(scanner)
    scanner.consume_if(",")
    for word, kind in _KEYWORDS.items():
        before = scanner.pos
        if scanner.consume_if(word):
            if not scanner.peek("="):
                return HloSharding(kind)
            scanner.pos = before
    dims = _read_dims(scanner, mesh) if scanner.peek("[") else ()
    lists = _read_axis_lists(scanner, mesh)
    return _tiled(scanner, start, mesh, dims, lists)


def _read_dims(scanner: Scanner, mesh: MeshText) -> tuple[tuple[AxisText, ...], ...]:
    """Read ``[{'x'}, {?}, {'y', ?}]``; ``?`` (an open dimension) is in the text only."""
    dims: list[tuple[AxisText, ...]] = []
    for _ in scanner.items("[", "]"):
        axes: list[AxisText] = []
        for _ in scanner.items():
            if scanner.consume_if("?"):
                scanner.expect("}")
                break
            axes.append(read_axis(scanner, mesh))
        dims.append(tuple(axes))
    return tuple(dims)


def _read_axis_lists(scanner: Scanner, mesh: MeshText) -> dict[SubgroupType, tuple[AxisText, ...]]:
    lists: dict[SubgroupType, tuple[AxisText, ...]] = {}
    while True:
        before = scanner.pos
        scanner.consume_if(",")
        for word, kind in _AXIS_LISTS.items():
            if scanner.consume_if(word):
                scanner.expect("=")
                lists[kind] = read_axes(scanner, mesh)
                break
        else:
            scanner.pos = before
            return lists


def _tiled(
    scanner: Scanner,
    start: int,
    mesh: MeshText,
    dims: tuple[tuple[AxisText, ...], ...],
    lists: dict[SubgroupType, tuple[AxisText, ...]],
) -> HloSharding:
    named = tuple(axis for dim in (*dims, *lists.values()) for axis in dim)
    sub_axes = SubAxes.of(mesh, named)
    if not sub_axes.fits:
        scanner.fail("sub-axes overlap", start)
    groups = [tuple(p for axis in dim for p in sub_axes.positions(axis)) for dim in dims]
    special = {
        kind: tuple(p for axis in axes for p in sub_axes.positions(axis))
        for kind, axes in lists.items()
    }
    used = [p for group in (*groups, *special.values()) for p in group]
    if len(set(used)) != len(used):
        scanner.fail("an axis is used twice", start)
    unused = tuple(p for p in range(len(sub_axes.sizes)) if p not in used)
    replicated = special.pop(SubgroupType.REPLICATED, ()) + unused
    subgroups: list[tuple[SubgroupType, tuple[int, ...]]] = [
        (kind, special[kind])
        for kind in (SubgroupType.MANUAL, SubgroupType.UNREDUCED)
        if kind in special
    ]
    subgroups.append((SubgroupType.REPLICATED, replicated))
    return _assemble(mesh, sub_axes, groups, subgroups)


def _assemble(
    mesh: MeshText,
    sub_axes: SubAxes,
    groups: list[tuple[int, ...]],
    subgroups: list[tuple[SubgroupType, tuple[int, ...]]],
) -> HloSharding:
    """Return the sharding with the sub-axes in the order: dimensions, then subgroups."""
    size_of = sub_axes.sizes.__getitem__
    subgroups = [(kind, part) for kind, part in subgroups if math.prod(map(size_of, part)) > 1]
    tile_dims = tuple(math.prod(map(size_of, group)) for group in groups)
    if math.prod(tile_dims) == 1 and len(subgroups) <= 1:
        only = [kind for kind, _ in subgroups]
        if only in ([], [SubgroupType.REPLICATED]):
            return HloSharding.replicated()
        return (
            HloSharding.manual()
            if only == [SubgroupType.MANUAL]
            else HloSharding(ShardingKind.UNREDUCED)
        )
    dims = tile_dims + tuple(math.prod(map(size_of, part)) for _, part in subgroups)
    order = tuple(p for group in (*groups, *(part for _, part in subgroups)) for p in group)
    missing = tuple(p for p in range(len(sub_axes.sizes)) if p not in order)
    sizes, perm = _simplify(sub_axes.sizes, order + missing)
    iota = IotaTile(dims, sizes, perm)
    kinds = tuple(kind for kind, _ in subgroups)
    if mesh.device_ids is None:
        return HloSharding.tiled(TileAssignment(iota), kinds)
    ids = np.asarray(mesh.device_ids)[iota.ids().reshape(-1)]
    return HloSharding.tiled(TileAssignment(IotaTile.of(dims), tuple(ids.tolist())), kinds)


def _simplify(
    sizes: tuple[int, ...], perm: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the canonical iota form: sub-axes of size 1 are dropped, neighbours that stay neighbours are merged."""
    order = [p for p in perm if sizes[p] > 1]
    runs: list[list[int]] = []
    for p in order:
        previous = [q for q in range(len(sizes)) if q < p and sizes[q] > 1]
        if runs and previous and runs[-1][-1] == previous[-1]:
            runs[-1].append(p)
        else:
            runs.append([p])
    by_position = sorted(range(len(runs)), key=lambda r: runs[r][0])
    merged = tuple(math.prod(sizes[p] for p in runs[r]) for r in by_position)
    position = {r: i for i, r in enumerate(by_position)}
    return merged or (1,), tuple(position[r] for r in range(len(runs))) or (0,)
