"""Choices that operations of random programs make: an array of the pool, an axis, constants, factors of a size.

They depend on the dice and on shapes and types alone, never on values, so that a program that is traced twice is the
same program.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np

#: An operation takes dice and a pool of arrays and returns a new array, or None where no array of the pool fits.
Op = Callable[[Random, list[Any]], Any]

#: Elements that a value may have, and dimensions.
MOST_ELEMENTS, MOST_DIMENSIONS = 2048, 5


class Pool(list[Any]):
    """Arrays of a program, with those that an operation has taken."""

    def __init__(self, arrays: list[Any]) -> None:
        super().__init__(arrays)
        self.taken: set[int] = set()

    def unused(self) -> list[Any]:
        return [x for x in self if id(x) not in self.taken]


def is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def is_integer(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.integer))


def is_complex(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.complexfloating))


def is_ordered(x: Any) -> bool:
    return is_float(x) or is_integer(x)


def is_kept(value: Any) -> bool:
    """Tell whether a value is small enough, and not empty."""
    return value is not None and 0 < value.size <= MOST_ELEMENTS and value.ndim <= MOST_DIMENSIONS


def pick(dice: Random, pool: list[Any], fits: Callable[[Any], bool] = lambda _: True) -> Any:
    """One of the arrays that fit, rather a late one; None where none does."""
    fitting = [x for x in pool if fits(x)]
    if not fitting:
        return None
    chosen = fitting[max(dice.randrange(len(fitting)), dice.randrange(len(fitting)))]
    if isinstance(pool, Pool):
        pool.taken.add(id(chosen))
    return chosen


def pick_float(dice: Random, pool: list[Any], rank: int = 0) -> Any:
    return pick(dice, pool, lambda x: is_float(x) and x.ndim >= rank)


def pick_single(dice: Random, pool: list[Any], rank: int = 0) -> Any:
    """A floating-point array as f32."""
    x = pick_float(dice, pool, rank)
    return None if x is None else x.astype(jnp.float32)


def coarse(x: Any) -> Any:
    """Whole numbers in the order of floating-point elements, of their type, equal where these differ by rounding alone.

    They jump far from whole numbers, their quarters and eighths, which many functions and sums give.
    """
    whole = jnp.floor(2.2 * x.astype(jnp.float32) + 0.4173)
    return whole.astype(x.dtype) if is_float(x) else x


def constant(dice: Random, *shape: int) -> Any:
    values = np.random.default_rng(dice.randrange(1 << 30)).standard_normal(shape)
    return (values / math.sqrt(max(1, shape[0] if shape else 1))).astype(np.float32)


def axis_of(dice: Random, x: Any) -> int:
    return dice.randrange(x.ndim)


def factors(dice: Random, size: int) -> list[int]:
    """Random factors of `size`, in order."""
    found: list[int] = []
    while size > 1 and len(found) < 3:
        divisors = [d for d in range(2, size + 1) if size % d == 0]
        found.append(dice.choice(divisors))
        size //= found[-1]
    return [*found, size] if size > 1 or not found else found


def indices_below(dice: Random, pool: list[Any], size: int) -> Any:
    """Indices from 0 to `size` - 1: a constant, or data of the program.

    Whole numbers and their quarters, at which functions saturate, are not cut off near a whole number: rounding would
    decide.
    """
    if dice.random() < 0.5:
        rng = np.random.default_rng(dice.randrange(1 << 30))
        return jnp.asarray(rng.integers(0, size, dice.choice((3, 8, 13))), jnp.int32)
    data = pick(dice, pool, lambda x: is_ordered(x) and x.size)
    if data is None:
        return jnp.arange(3) % size
    data = jnp.clip(jnp.abs(data.ravel()[:9].astype(jnp.float32)), 0, 1000)
    return (4.7 * data + 0.43).astype(jnp.int32) % size
