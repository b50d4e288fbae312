"""Operations of random programs that hold computations: loops, branches, gradients, maps, and `shard_map`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from benchmarks.zoo.program import P
from benchmarks.zoo.random_ops import Op, axis_of, constant, is_float, pick, pick_float

#: What the number of devices divides, whatever it is.
WHOLE = 8


def loop(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool, 1)
    if x is None:
        return None
    x, kind, trips = x.astype(jnp.float32), dice.randrange(5), dice.randint(2, 5)
    if kind == 0:
        last, ys = lax.scan(
            lambda c, r: (jnp.tanh(c + r), c.sum()), x[0], x, reverse=dice.random() < 0.5
        )
        return ys + last.sum()
    if kind == 1:
        return lax.fori_loop(0, trips, lambda k, v: jnp.sin(v) + k * jnp.roll(v, 1, 0), x)
    if kind == 2:
        going = lambda s: (s[0] < trips) & (jnp.sum(s[1]) < 50)  # noqa: E731
        return lax.while_loop(going, lambda s: (s[0] + 1, s[1] * 0.5 + 1), (0, x))[1]
    if kind == 3:
        fill = lambda k, v: v.at[k % len(v)].set(jnp.cos(v[(k + 1) % len(v)]))  # noqa: E731
        return lax.fori_loop(0, trips, fill, x)
    pair = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])  # noqa: E731
    return lax.associative_scan(pair, (jax.nn.sigmoid(x), x), axis=axis_of(dice, x))[1]


def branch(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool, 1)
    if x is None:
        return None
    which = jnp.sum(x.astype(jnp.float32)) > dice.uniform(-2, 2)
    if dice.random() < 0.5:
        return lax.cond(which, lambda v: jnp.cumsum(v, 0) / 4, lambda v: v[::-1] * 2, x)
    branches = (lambda v: v, lambda v: jnp.sort(v, 0), lambda v: v - v.mean(0))
    return lax.switch(which.astype(jnp.int32) + dice.randrange(2), branches, x)


def composed(dice: Random, ops: tuple[Op, ...], length: int) -> Callable[[Any], Any]:
    """A function of one array, made of random operations."""
    state = dice.getstate()
    dice.random()

    def function(x: Any) -> Any:
        own = Random()
        own.setstate(state)
        values = [x]
        for _ in range(length):
            y = own.choice(ops)(own, values)
            if y is not None and y.size <= 4096:
                values.append(y)
        return values[-1]

    return function


def gradient(dice: Random, pool: list[Any], ops: tuple[Op, ...]) -> Any:
    x = pick_float(dice, pool)
    if x is None:
        return None
    function = composed(dice, ops, dice.randint(1, 4))
    scalar = lambda v: jnp.sum(jnp.tanh(function(v).astype(jnp.float32)))  # noqa: E731
    if dice.random() < 0.3:
        scalar = jax.checkpoint(scalar)
    if dice.random() < 0.3:
        return jax.jvp(scalar, (x,), (jnp.ones_like(x),))[1]
    return jnp.clip(jax.grad(scalar)(x), -10, 10)


def mapped(dice: Random, pool: list[Any], ops: tuple[Op, ...]) -> Any:
    x = pick(dice, pool, lambda x: is_float(x) and x.ndim >= 2)
    if x is None:
        return None
    axis = axis_of(dice, x)
    return jax.vmap(composed(dice, ops, dice.randint(1, 3)), in_axes=axis)(x)


def per_device(dice: Random, pool: list[Any], mesh: Mesh) -> Any:
    """A manual region whose result does not depend on the number of devices."""
    x = pick(
        dice, pool, lambda x: is_float(x) and x.ndim >= 1 and x.shape[0] % WHOLE == 0 and x.size
    )
    if x is None:
        return None
    kind, names = dice.randrange(6), mesh.axis_names
    rows = P(names)
    if kind == 0:
        body, out = lambda v: v - lax.pmax(v.max(0), names), rows
    elif kind == 1:
        body, out = lambda v: lax.psum(jnp.sin(v).sum(0), names), P()
    elif kind == 2:
        body, out = lambda v: lax.psum(v, names[0]) * 0 + lax.pmin(v.min(), names), rows
    elif kind == 3:
        body, out = lambda v: lax.all_gather(v, names, tiled=True)[::-1], P()
    elif kind == 4:
        w = constant(dice, x.shape[0], x.shape[0]).astype(x.dtype)

        def body(v: Any) -> Any:
            start = lax.axis_index(names) * v.shape[0]
            own = lax.dynamic_slice_in_dim(w, start, v.shape[0], 0)
            product = jnp.tensordot(own, v, (0, 0))
            return jnp.tanh(lax.psum_scatter(product, names, tiled=True))

        out = rows
    else:
        if x.ndim < 2 or x.shape[1] % WHOLE:
            return None
        body, out = lambda v: lax.all_to_all(v, names, 1, 0, tiled=True) * 2, P(None, names)
    return jax.shard_map(body, mesh=mesh, in_specs=rows, out_specs=out, check_vma=False)(x)
