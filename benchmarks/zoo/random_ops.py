"""Operations that random programs are made of: each takes dice and a pool of arrays and returns a new array or None.

None says that no array of the pool fits. Choices depend on the dice and on shapes alone, never on the mesh, so that a
program is the same on every number of devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Op = Callable[[Random, list[Any]], Any]


def is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def pick(dice: Random, pool: list[Any], fits: Callable[[Any], bool] = lambda _: True) -> Any:
    """One of the arrays that fit, rather a late one; None where none does."""
    fitting = [x for x in pool if fits(x)]
    if not fitting:
        return None
    return fitting[max(dice.randrange(len(fitting)), dice.randrange(len(fitting)))]


def pick_float(dice: Random, pool: list[Any], rank: int = 0) -> Any:
    return pick(dice, pool, lambda x: is_float(x) and x.ndim >= rank)


def constant(dice: Random, *shape: int) -> Any:
    values = np.random.default_rng(dice.randrange(1 << 30)).standard_normal(shape)
    return (values / math.sqrt(max(1, shape[0]))).astype(np.float32)


def axis_of(dice: Random, x: Any) -> int:
    return dice.randrange(x.ndim)


def unary(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool)
    functions = (
        jnp.tanh, jnp.sin, jnp.abs, jnp.negative, lambda x: jnp.floor(1.7 * x + 0.3),
        jnp.sign, lax.erf, jax.nn.sigmoid, jnp.cbrt, jnp.arctan,
        lambda x: jnp.sqrt(jnp.abs(x)), lambda x: jnp.log1p(jnp.abs(x)), lambda x: jnp.exp(-jnp.abs(x)),
        lambda x: lax.rsqrt(1 + x * x), jax.nn.gelu, jax.nn.softplus, lambda x: lax.reduce_precision(x, 8, 7),
        lambda x: jnp.where(jnp.isfinite(x), x, 0), lambda x: lax.optimization_barrier(x),
    )  # fmt: skip
    return None if x is None else dice.choice(functions)(x)


def binary(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool)
    if x is None:
        return None
    y = pick(dice, pool, lambda y: y.shape == x.shape and y.dtype == x.dtype)
    if dice.random() < 0.3 and x.ndim:
        axis = axis_of(dice, x)
        y = lax.index_in_dim(x, dice.randrange(x.shape[axis]), axis)
    functions = (
        jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.arctan2, jnp.logaddexp,
        lambda a, b: a / (1 + jnp.abs(b)), lambda a, b: jnp.where(a > b, a, 2 * b),
        lambda a, b: jnp.power(jnp.abs(a) + 0.5, jnp.tanh(b)), lambda a, b: jnp.clip(a, -jnp.abs(b), 1.0),
        lambda a, b: jnp.remainder(a, jnp.abs(b) + 1), lambda a, b: (a <= b).astype(a.dtype),
    )  # fmt: skip
    return dice.choice(functions)(x, y)


def integer(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: jnp.issubdtype(x.dtype, jnp.integer))
    if x is None:
        x = pick_float(dice, pool)
        return (
            None if x is None else jnp.round(4 * jnp.tanh(x.astype(jnp.float32))).astype(jnp.int32)
        )
    functions = (
        lambda x: x * 3 - 1, lambda x: x ^ (x >> 1), lambda x: x & 5, lambda x: lax.population_count(x),
        lambda x: x % 7, lambda x: x // 3, lambda x: jnp.abs(x) << 1, lambda x: lax.clz(x),
        lambda x: (x > 1).astype(jnp.uint8), lambda x: x.astype(jnp.int8), lambda x: x.astype(jnp.float32) / 8,
        lambda x: jnp.maximum(x, -x), lambda x: jnp.gcd(x, jnp.ones_like(x) * 6),
    )  # fmt: skip
    return dice.choice(functions)(x)


def convert(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool)
    if x is None:
        return None
    x = jnp.tanh(x.astype(jnp.float32))
    dtype = dice.choice(
        (jnp.bfloat16, jnp.float16, jnp.float32, jnp.float8_e4m3fn, jnp.float8_e5m2)
    )
    x = x.astype(dtype)
    return x.astype(jnp.float32) if x.dtype.itemsize == 1 else x


def reduction(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and x.dtype != bool)
    if x is None:
        return None
    axes = tuple(sorted(dice.sample(range(x.ndim), dice.randint(1, x.ndim))))
    keep = dice.random() < 0.5
    kind = dice.choice(("sum", "max", "min", "mean", "argmax", "any", "var", "logsumexp", "norm"))
    if kind == "argmax":
        return jnp.argmax(x, axes[0], keepdims=keep)
    if kind == "any":
        return jnp.any(x > 0.5, axes, keepdims=keep).astype(jnp.float32)
    if kind == "logsumexp":
        return jax.nn.logsumexp(x.astype(jnp.float32), axes, keepdims=keep)
    if kind == "norm":
        return jnp.sqrt(1 + jnp.sum(jnp.square(x.astype(jnp.float32)), axes, keepdims=keep))
    return getattr(jnp, kind)(x, axes, keepdims=keep)


def product(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool, 1)
    if x is None:
        return None
    kind = dice.randrange(5)
    if kind == 0:
        return jnp.tanh(x @ constant(dice, x.shape[-1], dice.choice((3, 8, 16))).astype(x.dtype))
    y = pick(dice, pool, lambda y: is_float(y) and y.ndim >= 1 and y.shape[-1] == x.shape[-1])
    if kind == 1:
        out = jnp.tensordot(x, y.astype(x.dtype), (-1, -1))
        return jnp.tanh(out)
    if kind == 2 and x.ndim >= 2:
        return jnp.tanh(jnp.einsum("...ij,...kj->...ik", x, x))
    if kind == 3:
        axis = axis_of(dice, x)
        w = constant(dice, x.shape[axis], 5).astype(x.dtype)
        return jnp.tanh(jnp.moveaxis(jnp.tensordot(x, w, (axis, 0)), -1, axis))
    flat = x.reshape(-1, x.shape[-1])
    return jnp.tanh(flat.T @ flat)


def factors(dice: Random, size: int) -> list[int]:
    """Random factors of `size`, in order."""
    found = []
    while size > 1 and len(found) < 3:
        divisors = [d for d in range(2, size + 1) if size % d == 0]
        found.append(dice.choice(divisors))
        size //= found[-1]
    return [*found, size] if size > 1 or not found else found


def reshape(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool)
    kind = dice.randrange(5)
    if kind == 0:
        return x.reshape(factors(dice, x.size))
    if kind == 1 and x.ndim >= 2:
        axis = dice.randrange(x.ndim - 1)
        return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
    if kind == 2 and x.ndim:
        axis = axis_of(dice, x)
        return x.reshape(*x.shape[:axis], *factors(dice, x.shape[axis]), *x.shape[axis + 1 :])
    if kind == 3:
        order = list(range(x.ndim))
        dice.shuffle(order)
        return jnp.transpose(x, order)
    return jnp.expand_dims(x, dice.randint(0, x.ndim))


def slicing(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and min(x.shape) > 1)
    if x is None:
        return None
    axis, kind = axis_of(dice, x), dice.randrange(7)
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
        parts = [x, jnp.flip(x, axis), lax.slice_in_dim(x, 0, dice.randint(1, size), 1, axis)]
        return jnp.concatenate(parts[: dice.randint(2, 3)], axis)
    where = jnp.argmax(x.ravel()[: size + 3]).astype(jnp.int32)
    if kind == 5:
        return lax.dynamic_slice_in_dim(x, where, dice.randint(1, size), axis)
    part = lax.slice_in_dim(x, 0, dice.randint(1, size), 1, axis)
    return lax.dynamic_update_slice_in_dim(x, part[::-1], where, axis)


def indexing(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and x.size)
    if x is None:
        return None
    axis, kind = axis_of(dice, x), dice.randrange(6)
    size = x.shape[axis]
    rng = np.random.default_rng(dice.randrange(1 << 30))
    indices = jnp.asarray(rng.integers(0, size, dice.choice((3, 8, 13))), jnp.int32)
    data = (jnp.abs(pick(dice, pool).ravel()[:9].astype(jnp.float32)) * 5).astype(jnp.int32)
    data = jnp.clip(data, 0, size + 1)
    if kind == 0:
        return jnp.take(x, indices, axis)
    if kind == 1:
        return jnp.take(x, data, axis, mode="fill", fill_value=2)
    if kind == 2:
        along = jnp.argsort(x, axis)
        return jnp.take_along_axis(x, along, axis)
    rows = jnp.moveaxis(x, axis, 0)
    update = jnp.take(rows, indices, 0)
    if kind == 3:
        return rows.at[indices].add(update)
    if kind == 4:
        chosen = jnp.clip(data, 0, size - 1)
        return rows.at[chosen].max(jnp.take(rows, chosen, 0) * 2, mode="drop")
    if not is_float(x):
        return None
    return jax.ops.segment_sum(rows, jnp.arange(size) % 3, 4)


def ordering(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and x.dtype != bool and x.size)
    if x is None:
        return None
    axis, kind = axis_of(dice, x), dice.randrange(7)
    if kind == 0:
        return jnp.sort(x, axis, descending=dice.random() < 0.5)
    if kind == 1:
        keys, values = lax.sort((x, jnp.flip(x, axis)), dimension=axis, num_keys=1)
        return keys - values
    if kind == 2:
        values, _ = lax.top_k(x, dice.randint(1, x.shape[-1]))
        return values
    if not is_float(x):
        return jnp.cumsum(x, axis)
    functions = (lax.cumsum, lax.cummax, lax.cummin, lax.cumlogsumexp)
    return dice.choice(functions)(x, axis=axis, reverse=dice.random() < 0.5) / 2


def windows(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: is_float(x) and x.ndim >= 1 and x.size >= 16)
    if x is None:
        return None
    kind = dice.randrange(3)
    if kind == 0:
        window = tuple(dice.randint(1, min(3, n)) for n in x.shape)
        strides = tuple(dice.randint(1, 2) for _ in x.shape)
        start, function = dice.choice(((0.0, lax.add), (-np.inf, lax.max)))
        start = np.array(start, x.dtype)
        return lax.reduce_window(
            x, start, function, window, strides, dice.choice(("SAME", "VALID"))
        )
    x = x.astype(jnp.float32).reshape(-1)[: x.size - x.size % 4]
    if kind == 1:
        image = x.reshape(1, -1, 4)
        kernel = constant(dice, 3, 4, 5)
        strides, padding = (dice.randint(1, 3),), dice.choice(("SAME", "VALID"))
        dilation = (dice.randint(1, 2),)
        names = ("NWC", "WIO", "NWC")
        if image.shape[1] < 8:
            return None
        return jnp.tanh(
            lax.conv_general_dilated(image, kernel, strides, padding, (1,), dilation, names)
        )
    return jnp.convolve(x, constant(dice, 3), "full")[: x.size]
