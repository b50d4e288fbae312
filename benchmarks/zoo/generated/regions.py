"""Operations of random programs that hold computations: loops, branches, derivatives, maps and calls."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.zoo.generated.dice import (
    Op,
    axis_of,
    constant,
    is_float,
    is_kept,
    pick,
    pick_float,
    pick_single,
)

#: Places a value of a loop on the mesh, as dice say.
Constrain = Callable[[Random, Any], Any]


def loop(dice: Random, pool: list[Any], constrain: Constrain) -> Any:
    x = pick_single(dice, pool, 1)
    if x is None:
        return None
    kind, trips, rest = dice.randrange(7), dice.randint(2, 5), dice.getstate()
    backward, axis = dice.random() < 0.5, axis_of(dice, x)

    def placed(value: Any) -> Any:
        own = Random()
        own.setstate(rest)
        return constrain(own, value) if own.random() < 0.5 else value

    if kind == 0:
        step = lambda c, r: (placed(jnp.tanh(c + r)), c.sum())  # noqa: E731
        last, ys = lax.scan(step, placed(x[0]), x, reverse=backward)
        return ys + last.sum()
    if kind == 1:
        shift = lambda k, v: placed(jnp.sin(v) + k * jnp.roll(v, 1, 0))  # noqa: E731
        return lax.fori_loop(0, trips, shift, x)
    if kind == 2:
        going = lambda s: (s[0] < trips) & (jnp.sum(s[1]) < 50.37)  # noqa: E731
        return lax.while_loop(going, lambda s: (s[0] + 1, placed(s[1] * 0.5 + 1)), (0, x))[1]
    if kind == 3:
        fill = lambda k, v: v.at[k % len(v)].set(jnp.cos(v[(k + 1) % len(v)]))  # noqa: E731
        return lax.fori_loop(0, trips, fill, x)
    if kind == 4:
        return lax.map(lambda r: placed(jnp.cumsum(jnp.tanh(r).ravel())), x)
    if kind == 5 and x.size <= 256:
        w = constant(dice, x.shape[-1], x.shape[-1])
        return lax.scan(lambda c, _: (placed(jnp.tanh(c @ w)), c.max()), x, None, length=trips)[0]
    pair = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])  # noqa: E731
    return lax.associative_scan(pair, (jax.nn.sigmoid(x), x), axis=axis, reverse=backward)[1]


def nested(dice: Random, pool: list[Any], constrain: Constrain) -> Any:
    """A loop whose new state is what a loop in it gives, or a branch with one, beside other readings of the old."""
    x = pick_single(dice, pool, 1)
    if x is None or x.size > 512:
        return None
    readings = (
        lambda v: v,
        lambda v: jnp.roll(v, 1, -1),
        lambda v: v[::-1] - v,
        lambda v: jnp.cos(v) * jnp.mean(v),
        lambda v: jnp.cumsum(v, 0) / len(v),
    )
    first, side, late = (dice.choice(readings) for _ in range(3))
    trips, inner, kind, order = (
        dice.randint(2, 9),
        dice.randint(2, 9),
        *dice.choices(range(4), k=2),
    )
    is_placed, own = dice.random() < 0.5, dice.getstate()

    def looped(v: Any) -> Any:
        if kind == 0:
            return lax.fori_loop(0, inner, lambda k, c: jnp.sin(c) + k / 8, v)
        if kind == 1:
            going = lambda s: (s[0] < inner) & (jnp.sum(s[1]) < 50.37)  # noqa: E731
            return lax.while_loop(going, lambda s: (s[0] + 1, jnp.abs(s[1]) * 0.7 + 0.1), (0, v))[1]
        if kind == 2:
            return lax.scan(lambda c, r: (jnp.tanh(c + r), None), v, v)[0]
        some = lambda c: lax.fori_loop(0, inner, lambda _, y: jnp.sin(y), c)  # noqa: E731
        return lax.cond(jnp.sum(v) > 0.3173, some, lambda c: jnp.cos(c) - c[::-1], v)

    def body(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        v, u = state
        begun, beside = first(v), side(v) + u / 2
        if is_placed:
            again = Random()
            again.setstate(own)
            begun = constrain(again, begun)
        found = looped(begun)
        others = (beside, u - late(found), jnp.tanh(beside) * late(begun), u)
        pair = (found, others[order])
        return pair if order % 2 else (pair[1] / 2, pair[0])

    last = lax.fori_loop(0, trips, body, (x, jnp.sin(x)))
    return last[0] - last[1]


def branch(dice: Random, pool: list[Any], ops: tuple[Op, ...]) -> Any:
    x = pick_float(dice, pool, 1)
    if x is None:
        return None
    which = jnp.sum(x.astype(jnp.float32)) > dice.uniform(-2, 2)
    kind = dice.randrange(3)
    if kind == 0:
        return lax.cond(which, lambda v: jnp.cumsum(v, 0) / 4, lambda v: v[::-1] * 2, x)
    if kind == 1:
        function = composed(dice, ops, 2)
        return lax.cond(which, function, lambda v: jnp.ones_like(function(v)), x)
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
            if is_kept(y):
                values.append(y)
        return values[-1]

    return function


@jax.custom_vjp
def clipped(x: Any) -> Any:
    """An identity whose gradient is clipped."""
    return x


clipped.defvjp(lambda x: (x, x), lambda x, g: (jnp.clip(g, -0.5, 0.5) * jnp.sign(x - 0.037),))


def gradient(dice: Random, pool: list[Any], ops: tuple[Op, ...]) -> Any:
    x = pick_float(dice, pool)
    if x is None:
        return None
    function = composed(dice, ops, dice.randint(1, 3))
    kind = dice.random()
    inner = clipped if kind > 0.8 else lambda v: v

    def scalar(v: Any) -> Any:
        found = function(inner(v))
        return jnp.sum(jnp.tanh(jnp.real(found).astype(jnp.float32)))

    if dice.random() < 0.3:
        scalar = jax.checkpoint(scalar)
    if kind < 0.25:
        return jax.jvp(scalar, (x,), (jnp.ones_like(x),))[1]
    if kind < 0.35 and x.size <= 64:
        return jnp.clip(jax.jvp(jax.grad(scalar), (x,), (jnp.ones_like(x),))[1], -10, 10)
    return jnp.clip(jax.grad(scalar)(x), -10, 10)


def mapped(dice: Random, pool: list[Any], ops: tuple[Op, ...]) -> Any:
    x = pick(dice, pool, lambda x: is_float(x) and x.ndim >= 2)
    if x is None:
        return None
    axis, function = axis_of(dice, x), composed(dice, ops, dice.randint(1, 3))
    if dice.random() < 0.2:
        going = lambda v: jnp.sum(v) < 5.37  # noqa: E731
        function = lambda r: lax.while_loop(going, lambda v: jnp.abs(v) + 1, r)  # noqa: E731
    return jax.vmap(function, in_axes=axis)(x)


def called(dice: Random, pool: list[Any], ops: tuple[Op, ...]) -> Any:
    """A jitted function that is called twice."""
    x = pick_float(dice, pool, 1)
    if x is None:
        return None
    function = jax.jit(composed(dice, ops, 2))
    first, second = function(x), function(x[::-1])
    return jnp.concatenate([first.ravel(), second.ravel()])
