"""Random sharded programs of JAX: `random_SEED` is a program of the zoo for every SEED."""

from __future__ import annotations

from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding

from benchmarks.zoo import random_ops, random_regions
from benchmarks.zoo.program import Builder, P, Program, integers, mesh_of, normal
from benchmarks.zoo.random_ops import Op

#: Elements that a value may have, and dimensions.
MOST_ELEMENTS, MOST_DIMENSIONS = 4096, 5

PLAIN: tuple[Op, ...] = (
    random_ops.unary,
    random_ops.binary,
    random_ops.integer,
    random_ops.convert,
    random_ops.reduction,
    random_ops.product,
    random_ops.reshape,
    random_ops.slicing,
    random_ops.indexing,
    random_ops.ordering,
    random_ops.windows,
)
#: Operations that gradients and maps are made of.
SMOOTH: tuple[Op, ...] = tuple(op for op in PLAIN if op is not random_ops.integer)


def random_builder(seed: int) -> Builder:
    return lambda devices: random_program(seed, devices)


def specification(dice: Random, dims: int, names: tuple[str, ...]) -> P:
    """Each axis on one of the dimensions, or on none; several may share one."""
    parts: list[tuple[str, ...]] = [()] * dims
    for name in dice.sample(names, len(names)):
        where = dice.randrange(dims + 1)
        if where < dims:
            parts[where] = (*parts[where], name)
    return P(*parts)


def step_of(dice: Random, pool: list[Any], mesh: Mesh) -> Any:
    kind = dice.random()
    if kind < 0.08:
        return random_regions.loop(dice, pool)
    if kind < 0.12:
        return random_regions.branch(dice, pool)
    if kind < 0.18:
        return random_regions.gradient(dice, pool, SMOOTH)
    if kind < 0.24:
        return random_regions.mapped(dice, pool, SMOOTH)
    if kind < 0.30:
        return random_regions.per_device(dice, pool, mesh)
    return dice.choice(PLAIN)(dice, pool)


def random_program(seed: int, devices: int) -> Program:
    dice = Random(seed)
    names = dice.choice((("x",), ("x", "y"), ("x", "y", "z")))
    mesh = mesh_of(devices, *names)
    arguments = []
    for k in range(dice.randint(2, 4)):
        sizes = (8, 16, 5, 8, 3, 12, 7, 24)
        shape = [dice.choice(sizes) for _ in range(dice.randint(1, 3))]
        values = integers(seed + k, 9, *shape) if dice.random() < 0.2 else normal(seed + k, *shape)
        spec = specification(dice, len(shape), names)
        placed = [
            n if n and all(shape[d] % mesh.size == 0 for _ in n) else None
            for d, n in enumerate(spec)
        ]
        arguments.append(jax.device_put(values, NamedSharding(mesh, P(*placed))))
    length, body_seed = dice.randint(5, 14), dice.randrange(1 << 30)

    def run(*inputs: Any) -> Any:
        own, pool = Random(body_seed), list(inputs)
        for _ in range(length):
            value = step_of(own, pool, mesh)
            if value is None or not 0 < value.size <= MOST_ELEMENTS or value.ndim > MOST_DIMENSIONS:
                continue
            if own.random() < 0.4 and value.ndim:
                spec = specification(own, value.ndim, names)
                value = lax.with_sharding_constraint(value, NamedSharding(mesh, spec))
            pool.append(value)
        return pool[-own.randint(2, 5) :], jnp.stack([jnp.sum(x.astype(jnp.float32)) for x in pool])

    return Program(jax.jit(run, keep_unused=True), tuple(arguments), mesh)
