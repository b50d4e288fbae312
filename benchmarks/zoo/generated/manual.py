"""Regions of random programs that say what each device does: `shard_map` with collectives.

Their results do not depend on the number of devices, so that the run on one device is a reference for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from benchmarks.zoo.generated.dice import constant, is_float, pick
from benchmarks.zoo.program import P


@dataclass(frozen=True)
class Manual:
    """A mesh, and the number of rows that its devices divide evenly, which is the same on one device."""

    mesh: Mesh
    whole: int


def per_device(dice: Random, pool: list[Any], manual: Manual) -> Any:
    whole = manual.whole
    x = pick(dice, pool, lambda x: is_float(x) and x.ndim and x.shape[0] % whole == 0 and x.size)
    if x is None:
        return None
    mesh, names = manual.mesh, manual.mesh.axis_names
    kind = dice.randrange(9)
    if kind >= 7:
        return over_one_axis(dice, x, manual)
    if kind == 5 and (x.ndim < 2 or x.shape[1] % whole):
        return None
    body, out = body_of(dice, x, names, kind)
    return jax.shard_map(body, mesh=mesh, in_specs=P(names), out_specs=out, check_vma=False)(x)


def body_of(
    dice: Random, x: Any, names: tuple[str, ...], kind: int
) -> tuple[Callable[[Any], Any], P]:
    """Return the function that each device runs on its rows of `x`, and the PartitionSpec of its results."""
    rows = P(names)
    if kind == 0:
        return lambda v: v - lax.pmax(v.max(0), names), rows
    if kind == 1:
        return lambda v: lax.psum(jnp.sin(v).sum(0), names), P()
    if kind == 2:
        return lambda v: lax.psum(v, names[0]) * 0 + lax.pmin(v.min(), names), rows
    if kind == 3:
        return lambda v: lax.all_gather(v, names, tiled=True)[::-1], P()
    if kind == 4:
        w = constant(dice, x.shape[0], x.shape[0]).astype(x.dtype)

        def scattered(v: Any) -> Any:
            start = lax.axis_index(names) * v.shape[0]
            own = lax.dynamic_slice_in_dim(w, start, v.shape[0], 0)
            return jnp.tanh(lax.psum_scatter(jnp.tensordot(own, v, (0, 0)), names, tiled=True))

        return scattered, rows
    if kind == 5:
        return lambda v: lax.all_to_all(v, names, 1, 0, tiled=True) * 2, P(None, names)
    return shifted(names), rows


def shifted(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """A roll by one row: each device sends its last row to the next."""

    def body(v: Any) -> Any:
        count = math.prod(lax.axis_size(name) for name in names)
        ring = [(k, (k + 1) % count) for k in range(count)]
        before = lax.ppermute(v[-1:], names, ring)
        return jnp.concatenate([before, v[:-1]])

    return body


def over_one_axis(dice: Random, x: Any, manual: Manual) -> Any:
    """A region that is manual over one axis of the mesh; the partitioner divides the rest."""
    mesh = manual.mesh
    name = dice.choice(mesh.axis_names)
    if dice.random() < 0.5:
        body, out = lambda v: v + lax.pmean(v.mean(0), name), P(name)
    else:
        body, out = lambda v: jnp.cumsum(lax.all_gather(v, name, tiled=True), 0) / 4, P()
    return jax.shard_map(
        body, mesh=mesh, in_specs=P(name), out_specs=out, axis_names={name}, check_vma=False
    )(x)
