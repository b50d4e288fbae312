"""Operations of random programs that work element by element.

Those that jump do so elsewhere than at 0, 1/2 and other numbers that functions, sums and differences give: rounding
would decide. For the same reason floating-point numbers are not asked whether they are equal.
"""

from __future__ import annotations

from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.zoo.generated.dice import (
    axis_of,
    is_complex,
    is_float,
    is_integer,
    pick,
    pick_float,
    pick_single,
)


def unary(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool)
    functions = (
        jnp.tanh, jnp.sin, jnp.abs, jnp.negative, lambda x: jnp.floor(1.7 * x + 0.4173),
        lambda x: jnp.sign(x - 0.037), lax.erf, jax.nn.sigmoid, jnp.cbrt, jnp.arctan, jax.nn.silu,
        jax.nn.relu6, lax.logistic,
        lambda x: jnp.sqrt(jnp.abs(x)), lambda x: jnp.log1p(jnp.abs(x)), lambda x: jnp.exp(-jnp.abs(x)),
        lambda x: lax.rsqrt(1 + x * x), jax.nn.gelu, jax.nn.softplus, lambda x: lax.reduce_precision(x, 8, 7),
        lambda x: jnp.where(jnp.isfinite(x), x, 0), lambda x: lax.optimization_barrier(x), jnp.expm1,
        lambda x: jnp.cosh(jnp.clip(x, -2, 2)), lambda x: lax.lgamma(jnp.abs(x) + 1), lambda x: x ** 3,
        lambda x: jnp.arcsin(jnp.tanh(x) / 2), lambda x: jnp.tan(jnp.tanh(x)),
        lambda x: lax.round(x * 2.9 + 0.1373) / 4,
        lambda x: lax.digamma(jnp.abs(x) + 1), jnp.zeros_like, lax.stop_gradient, jnp.exp2,
        lambda x: jnp.trunc(1.1 * x + 0.1373),
    )  # fmt: skip
    return None if x is None else jnp.clip(dice.choice(functions)(x), -1e4, 1e4)


def binary(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool)
    if x is None:
        return None
    y = pick(dice, pool, lambda y: y.shape == x.shape and y.dtype == x.dtype)
    if dice.random() < 0.3 and x.ndim:
        axis = axis_of(dice, x)
        y = lax.index_in_dim(x, dice.randrange(x.shape[axis]), axis)
    functions = (
        jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.logaddexp,
        lambda a, b: jnp.arctan2(a + 0.037, b),
        lambda a, b: a / (1 + jnp.abs(b)), lambda a, b: jnp.where(a > b + 0.037, a, 2 * b),
        lambda a, b: jnp.power(jnp.abs(a) + 0.5, jnp.tanh(b)), lambda a, b: jnp.clip(a, -jnp.abs(b), 1.0),
        lambda a, b: jnp.remainder(a + 0.037, jnp.abs(b) + 1.1), lambda a, b: (a <= b + 0.037).astype(a.dtype),
        jnp.hypot, lambda a, b: jnp.copysign(a, b + 0.037), lambda a, b: jnp.select([a > 1.13, b > 0.037], [a, b], 0.5),
    )  # fmt: skip
    return jnp.clip(dice.choice(functions)(x, y), -1e4, 1e4)


def integer(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, is_integer)
    if x is None or dice.random() < 0.2:
        x = pick_single(dice, pool)
        kind = dice.choice((jnp.int32, jnp.int8, jnp.int16, jnp.uint8, jnp.uint32))
        return None if x is None else jnp.round(4 * jnp.abs(jnp.tanh(x))).astype(kind)
    functions = (
        lambda x: x * 3 - 1, lambda x: x ^ (x >> 1), lambda x: x & 5, lambda x: lax.population_count(x),
        lambda x: x % 7, lambda x: x // 3, lambda x: jnp.abs(x) << 1, lambda x: lax.clz(x), lambda x: ~x | 2,
        lambda x: (x > 1).astype(jnp.uint8), lambda x: x.astype(jnp.int8), lambda x: x.astype(jnp.float32) / 8,
        lambda x: jnp.maximum(x, 0 - x), lambda x: jnp.gcd(x, jnp.ones_like(x) * 6), lambda x: x.astype(jnp.bfloat16),
        lambda x: lax.shift_right_logical(x, jnp.ones_like(x)), jnp.sign, lambda x: x.astype(jnp.int16) * x,
        lambda x: lax.rem(x, jnp.full_like(x, 4)), lambda x: jnp.clip(x, 1, 3), lambda x: x ** 2,
    )  # fmt: skip
    return dice.choice(functions)(x)


def boolean(dice: Random, pool: list[Any]) -> Any:
    """Truth values of arrays, and what is made of them."""
    x = pick(dice, pool, lambda x: x.dtype == bool)
    if x is None or dice.random() < 0.4:
        y = pick(dice, pool, lambda y: is_float(y) or is_integer(y))
        if y is None:
            return None
        flipped = y[..., ::-1] if y.ndim else y
        if is_integer(y):
            return dice.choice((y > 1, y == 0, y != flipped))
        return dice.choice((y > 1.13, jnp.abs(y) < 0.037, jnp.abs(y - flipped) > 0.037))
    functions = (
        jnp.logical_not, lambda x: x ^ jnp.flip(x), lambda x: x & jnp.roll(x, 1), lambda x: x.astype(jnp.float32),
        lambda x: jnp.where(x, 3, -1), lambda x: jnp.all(x, axis=-1, keepdims=True) if x.ndim else x,
        lambda x: jnp.count_nonzero(x, axis=0) if x.ndim else x, lambda x: jnp.where(x, 1.5, 2.0).astype(jnp.bfloat16),
    )  # fmt: skip
    return dice.choice(functions)(x)


def complex_number(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, is_complex)
    if x is None or dice.random() < 0.3:
        x = pick_single(dice, pool)
        return None if x is None else lax.complex(jnp.tanh(x), jnp.cos(x))
    functions = (
        jnp.conj, jnp.real, jnp.imag, jnp.abs, lambda x: x * x, lambda x: x / (2 + jnp.abs(x)),
        lambda x: x.sum(-1) if x.ndim else x, lambda x: x - jnp.flip(x), lambda x: jnp.angle(x + (3 + 0.037j)),
        lambda x: x @ x.T.conj() / 4 if x.ndim == 2 else -x, lambda x: jnp.tanh(x / 4),
        lambda x: jnp.log(x + (3 + 0.037j)),
        lambda x: jnp.sqrt(x + (3 + 0.037j)), lambda x: jnp.exp(1j * x.real),
    )  # fmt: skip
    return dice.choice(functions)(x)


def convert(dice: Random, pool: list[Any]) -> Any:
    x = pick_single(dice, pool)
    if x is None:
        return None
    narrow = (jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16)
    x = jnp.tanh(x).astype(dice.choice(narrow))
    if x.dtype.itemsize == 2 and dice.random() < 0.2:
        return lax.bitcast_convert_type(jnp.round(6.3 * x + 0.1373), jnp.int16)
    return x.astype(jnp.float32) if x.dtype.itemsize == 1 else x
