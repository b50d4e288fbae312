"""Random shardings and values for the parameters and results of a small program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from spmd.device import IotaTile
from spmd.hlo import HloModule
from spmd.shape import ArrayShape, leaves
from spmd.sharding import HloSharding, SubgroupType, TileAssignment

Rng = np.random.Generator


def random_sharding(
    rng: Rng, mesh: tuple[int, ...], dims: tuple[int, ...], *, crowded: bool = False
) -> HloSharding:
    """Each mesh axis splits one dimension or none; only ``crowded`` ones have more shards than elements."""
    split: list[list[int]] = [[] for _ in dims]
    shards = [1] * len(dims)
    rest = []
    for axis in rng.permutation(len(mesh)).tolist():
        d = int(rng.integers(-1, len(dims)))
        if d >= 0 and (crowded or shards[d] * mesh[axis] <= dims[d]):
            split[d].append(axis)
            shards[d] *= mesh[axis]
        else:
            rest.append(axis)
    if all(n == 1 for n in shards):
        return HloSharding.replicated()
    order = [axis for axes in split for axis in axes] + sorted(rest)
    tail = math.prod(mesh[axis] for axis in rest)
    tile = (*shards, tail) if tail > 1 else tuple(shards)
    kinds = (SubgroupType.REPLICATED,) if tail > 1 else ()
    return HloSharding.tiled(TileAssignment(IotaTile(tile, mesh, tuple(order))), kinds)


def annotate(module: HloModule, rng: Rng, mesh: tuple[int, ...], *, crowded: bool = False) -> None:
    for parameter in module.entry.parameters:
        parameter.sharding = random_sharding(rng, mesh, parameter.dims, crowded=crowded)
    root = module.entry.root
    if rng.random() < 0.7:
        parts = tuple(
            random_sharding(rng, mesh, shape.dims, crowded=crowded)
            for _, shape in leaves(root.shape)
            if isinstance(shape, ArrayShape)
        )
        root.sharding = (
            parts[0] if isinstance(root.shape, ArrayShape) else HloSharding.tuple_of(parts)
        )


def random_array(rng: Rng, shape: ArrayShape) -> np.ndarray[Any, np.dtype[Any]]:
    """Small whole numbers; integers (indices) also a little out of range."""
    low = -3 if shape.element_type.is_signed_integer or shape.element_type.is_floating else 0
    values = rng.integers(low, 12, shape.dims)
    return np.asarray(values % 2 == 0 if shape.element_type.value == "pred" else values).astype(
        shape.element_type.numpy
    )
