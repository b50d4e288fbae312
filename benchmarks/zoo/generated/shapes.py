"""Operations of random programs that move elements: reshapes, transposes, slices, pads, concatenations, repetitions."""

from __future__ import annotations

from random import Random
from typing import Any

import jax.numpy as jnp
from jax import lax

from benchmarks.zoo.generated.dice import axis_of, coarse, factors, is_ordered, pick


def reshape(dice: Random, pool: list[Any]) -> Any:
    x, kind = pick(dice, pool), dice.randrange(6)
    if kind == 0:
        return x.reshape(factors(dice, x.size))
    if kind == 1 and x.ndim >= 2:
        axis = dice.randrange(x.ndim - 1)
        return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
    if kind == 2 and x.ndim:
        axis = axis_of(dice, x)
        return x.reshape(*x.shape[:axis], *factors(dice, x.shape[axis]), *x.shape[axis + 1 :])
    if kind in (3, 4):
        order = list(range(x.ndim))
        dice.shuffle(order)
        return jnp.transpose(x, order)
    return jnp.expand_dims(x, dice.randint(0, x.ndim))


def slicing(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and min(x.shape) > 1)
    if x is None:
        return None
    axis, kind = axis_of(dice, x), dice.randrange(6)
    size = x.shape[axis]
    if kind == 0:
        start = dice.randrange(size - 1)
        end = dice.randint(start + 1, size)
        return lax.slice_in_dim(x, start, end, dice.randint(1, 3), axis)
    if kind == 1:
        return jnp.flip(x, axis)
    if kind == 2:
        return jnp.roll(x, dice.randint(-size, size), axis)
    if kind == 3:
        pads = [(0, 0, 0)] * x.ndim
        pads[axis] = (dice.randint(-1, 3), dice.randint(-1, 3), dice.randint(0, 2))
        return lax.pad(x, jnp.zeros((), x.dtype), pads)
    if kind == 4:
        return dynamic(dice, pool, x, axis)
    parts = [x, jnp.flip(x, axis), lax.slice_in_dim(x, 0, dice.randint(1, size), 1, axis)]
    return jnp.concatenate(parts[: dice.randint(2, 3)], axis)


def dynamic(dice: Random, pool: list[Any], x: Any, axis: int) -> Any:
    """A slice of `x` that begins where data says, or an update of `x` there."""
    data = pick(dice, pool, is_ordered)
    if data is None:
        return None
    size = x.shape[axis]
    where = jnp.argmax(coarse(data.ravel()[: size + 3])).astype(jnp.int32)
    if dice.random() < 0.5:
        return lax.dynamic_slice_in_dim(x, where, dice.randint(1, size), axis)
    part = lax.slice_in_dim(x, 0, dice.randint(1, size), 1, axis)
    return lax.dynamic_update_slice_in_dim(x, part[::-1], where, axis)


def repeating(dice: Random, pool: list[Any]) -> Any:
    """Copies of an array, or parts of it that its last two dimensions select."""
    x = pick(dice, pool, lambda x: x.ndim)
    if x is None:
        return None
    axis, kind = axis_of(dice, x), dice.randrange(7)
    if kind == 0:
        return jnp.tile(x, [2 if d == axis else 1 for d in range(x.ndim)])
    if kind == 1:
        return jnp.repeat(x, dice.randint(2, 3), axis)
    if kind == 2:
        return jnp.broadcast_to(x, (dice.randint(2, 5), *x.shape))
    if kind == 3 or x.ndim < 2:
        return jnp.stack([x, jnp.flip(x, axis)], dice.randint(0, x.ndim))
    if kind == 4:
        return dice.choice((jnp.tril, jnp.triu))(x, dice.randint(-2, 2))
    if kind == 5:
        return jnp.diagonal(x, 0, -2, -1)
    return jnp.rot90(x, dice.randint(1, 3), (-2, -1))
