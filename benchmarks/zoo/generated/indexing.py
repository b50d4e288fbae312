"""Operations of random programs with indices: gathers, scatters, segments, counts, sorts and scans along an axis."""

from __future__ import annotations

from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.zoo.generated.dice import (
    axis_of,
    coarse,
    indices_below,
    is_float,
    is_ordered,
    pick,
)


def gather(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and x.size)
    if x is None:
        return None
    axis, kind = axis_of(dice, x), dice.randrange(5)
    size = x.shape[axis]
    indices = indices_below(dice, pool, size)
    if kind == 0:
        return jnp.take(x, indices, axis, mode=dice.choice(("clip", "wrap")))
    if kind == 1:
        return jnp.take(x, indices + 1, axis, mode="fill", fill_value=2)
    if kind == 2 and is_ordered(x):
        return jnp.take_along_axis(x, jnp.argsort(x, axis), axis)
    if kind == 3 and x.ndim >= 2:
        return x[indices % x.shape[0], indices % x.shape[1]]
    rows = jnp.moveaxis(x, axis, 0)
    return rows[jnp.stack([indices, indices[::-1]])]


def scatter(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and is_ordered(x) and x.size)
    if x is None:
        return None
    axis, kind = axis_of(dice, x), dice.randrange(7)
    rows = jnp.moveaxis(x, axis, 0)
    size = rows.shape[0]
    indices = indices_below(dice, pool, size)
    update = jnp.take(rows, indices, 0)
    if kind == 0:
        return rows.at[indices].add(update)
    if kind == 1:
        return rows.at[indices + 1].max(update * 2, mode="drop")
    if kind == 2:
        return rows.at[indices].min(update)
    if kind == 3:
        return rows.at[jnp.arange(0, size, 2)].set(rows[: (size + 1) // 2] * 2)
    if kind == 4 and is_float(x):  # JAX has gradients of unique ones alone
        factors = jnp.tanh(rows[: (size + 1) // 2])
        return rows.at[jnp.arange(0, size, 2)].mul(factors, unique_indices=True)
    owners = indices_below(dice, pool, 4)
    owners = jnp.resize(owners, (size,))
    reduce = dice.choice((jax.ops.segment_sum, jax.ops.segment_max, jax.ops.segment_min))
    return jnp.where(owners.max() >= 0, jnp.clip(reduce(rows, owners, 4), -9, 9), 0)


def counting(dice: Random, pool: list[Any]) -> Any:
    """Integers made of where elements lie among others."""
    x = pick(dice, pool, lambda x: is_ordered(x) and x.size >= 2)
    if x is None:
        return None
    flat, kind = x.ravel(), dice.randrange(6)
    whole = coarse(flat.astype(jnp.float32))
    if kind == 0:
        return jnp.searchsorted(jnp.sort(whole), whole[:7], side=dice.choice(("left", "right")))
    if kind == 1:
        return jnp.bincount(jnp.clip(whole, 0, 6).astype(jnp.int32), length=7)
    if kind == 2:
        return jax.nn.one_hot(jnp.clip(whole[:40], 0, 5).astype(jnp.int32), 5)
    if kind == 3:
        return jnp.nonzero(flat > 0.1373, size=6, fill_value=-1)[0]
    if kind == 4:
        return jnp.digitize(flat, jnp.array([-1.13, 0.1373, 0.713]))
    return jnp.unique(whole[:20].astype(jnp.int32), size=8, fill_value=99)


def ordering(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and is_ordered(x) and x.size)
    if x is None:
        return None
    axis, kind = axis_of(dice, x), dice.randrange(6)
    if kind == 0:
        return jnp.sort(x, axis, descending=dice.random() < 0.5)
    if kind == 1:
        keys, values = lax.sort((coarse(x), jnp.flip(x, axis)), dimension=axis, num_keys=1)
        return keys - values
    if kind == 2:
        values, _ = lax.top_k(x, dice.randint(1, x.shape[-1]))
        return values
    if kind == 3:
        return jnp.median(x.astype(jnp.float32), axis)
    if kind == 4:
        return jnp.argsort(coarse(x), axis, stable=True)
    return (
        lax.approx_max_k(x, 1)[0]
        if is_float(x) and x.dtype.itemsize == 4
        else jnp.argmin(coarse(x), axis)
    )


def cumulative(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and is_ordered(x))
    if x is None:
        return None
    axis, backward = axis_of(dice, x), dice.random() < 0.5
    if not is_float(x):
        return dice.choice((lax.cumsum, lax.cummax, lax.cummin))(x, axis=axis, reverse=backward)
    if dice.random() < 0.15:
        return jnp.diff(x, axis=axis, n=1)
    functions = (lax.cumsum, lax.cummax, lax.cummin, lax.cumlogsumexp, lax.cumprod)
    return dice.choice(functions)(jnp.tanh(x), axis=axis, reverse=backward) / 2
