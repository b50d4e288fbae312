"""Random sharded programs of JAX: `random_SEED` is a program of the zoo for every SEED."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding

from benchmarks.zoo.generated import elementwise, indexing, manual, numerics, regions, shapes
from benchmarks.zoo.generated.dice import Op, Pool, is_kept
from benchmarks.zoo.generated.seeds import devices_of
from benchmarks.zoo.program import Builder, P, Program, mesh_of

#: Operations that branches, derivatives and maps are made of.
SMOOTH: tuple[Op, ...] = (
    elementwise.unary,
    elementwise.binary,
    elementwise.convert,
    shapes.reshape,
    shapes.slicing,
    shapes.repeating,
    indexing.gather,
    indexing.scatter,
    indexing.ordering,
    indexing.cumulative,
    numerics.reduction,
    numerics.product,
    numerics.windows,
    numerics.factorization,
)
PLAIN: tuple[Op, ...] = (
    *SMOOTH,
    elementwise.integer,
    elementwise.boolean,
    elementwise.complex_number,
    indexing.counting,
    numerics.transform,
    numerics.random_numbers,
)
DTYPES = (jnp.float32,) * 9 + (
    jnp.bfloat16,
    jnp.float16,
    jnp.int32,
    jnp.int8,
    jnp.uint8,
    jnp.bool_,
    jnp.complex64,
)
SIZES = (8, 16, 5, 8, 3, 12, 7, 24, 6, 15)


def random_builder(seed: int) -> Builder:
    return lambda devices: random_program(seed, devices)


@dataclass(frozen=True)
class Meshes:
    """Meshes with different axes over the same devices, of which a program uses one or two."""

    all: tuple[Mesh, ...]

    def specification(self, dice: Random, dims: int, mesh: Mesh) -> P:
        """Put each axis on one of the dimensions, or on none; several may share one."""
        names = mesh.axis_names
        parts: list[tuple[str, ...]] = [()] * dims
        for name in dice.sample(names, len(names)):
            where = dice.randrange(dims + 1)
            if where < dims:
                parts[where] = (*parts[where], name)
        return P(*parts)

    def constrain(self, dice: Random, value: Any) -> Any:
        mesh = dice.choice(self.all)
        spec = self.specification(dice, value.ndim, mesh)
        return lax.with_sharding_constraint(value, NamedSharding(mesh, spec))

    def place(self, dice: Random, values: Any) -> Any:
        """Divide an argument where every number of devices divides its sizes."""
        mesh = self.all[0]
        spec = self.specification(dice, values.ndim, mesh)
        even = [
            names if names and values.shape[d] % mesh.size == 0 else None
            for d, names in enumerate(spec)
        ]
        return jax.device_put(values, NamedSharding(mesh, P(*even)))


def meshes_of(dice: Random, devices: int) -> Meshes:
    names = dice.choice((("x",), ("x", "y"), ("x", "y", "z")))
    mesh = mesh_of(devices, *names)
    if dice.random() < 0.75:
        return Meshes((mesh,))
    other = mesh.devices.reshape(mesh.devices.shape[::-1])
    return Meshes((mesh, Mesh(other, tuple(name * 2 for name in names))))


def argument(dice: Random, seed: int, whole: int) -> Any:
    sizes = (*SIZES, whole, 2 * whole)
    shape = [dice.choice(sizes) for _ in range(dice.randint(1, 3))]
    while math.prod(shape) > 1024:
        shape.pop()
    rng, dtype = np.random.default_rng(seed), dice.choice(DTYPES)
    if dtype == jnp.complex64:
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(rng.standard_normal(shape), dtype)
    return rng.integers(0, 2 if dtype == jnp.bool_ else 9, shape).astype(dtype)


def step_of(dice: Random, pool: list[Any], meshes: Meshes, whole: int) -> Any:
    kind = dice.random()
    if kind < 0.08:
        return regions.loop(dice, pool, meshes.constrain)
    if kind < 0.12:
        return regions.branch(dice, pool, SMOOTH)
    if kind < 0.17:
        return regions.gradient(dice, pool, SMOOTH)
    if kind < 0.22:
        return regions.mapped(dice, pool, SMOOTH)
    if kind < 0.24:
        return regions.called(dice, pool, SMOOTH)
    if kind < 0.32:
        return manual.per_device(dice, pool, manual.Manual(meshes.all[0], whole))
    if kind < 0.36:
        return regions.nested(dice, pool, meshes.constrain)
    return dice.choice(PLAIN)(dice, pool)


def random_program(seed: int, devices: int) -> Program:
    """The program is the same on one device as on those that its seed gives it, and on any power of two below."""
    dice = Random(seed)
    drawn = devices_of(seed)
    whole = 8 if 8 % drawn == 0 else drawn
    meshes = meshes_of(dice, devices)
    arguments = tuple(
        meshes.place(dice, argument(dice, seed + k, whole)) for k in range(dice.randint(1, 4))
    )
    length, body_seed = dice.randint(2, 5), dice.randrange(1 << 30)
    donated = tuple(k for k in range(len(arguments)) if dice.random() < 0.1)

    def run(*inputs: Any) -> Any:
        own, pool = Random(body_seed), Pool(list(inputs))
        for _ in range(length):
            value = step_of(own, pool, meshes, whole)
            if not is_kept(value):
                continue
            if own.random() < 0.4 and value.ndim:
                value = meshes.constrain(own, value)
            pool.append(value)
        return pool.unused() or pool[-1:]

    return Program(jax.jit(run, keep_unused=True, donate_argnums=donated), arguments, meshes.all[0])
