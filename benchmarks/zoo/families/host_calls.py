"""Programs that call the host: prints, callbacks, partitioning by Python, offloaded checkpoints, random bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding

from benchmarks.zoo.program import P, Program, mesh_of, normal, put


def debug_print(devices: int) -> Program:
    mesh = mesh_of(devices, "x")

    @jax.jit
    def run(a: Any) -> Any:
        jax.debug.print("sum {}", a.sum())
        return a * 2

    return Program(run, (put(mesh, normal(1, 16, 8), "x"),), mesh)


def pure_callback(devices: int) -> Program:
    mesh = mesh_of(devices, "x")

    @jax.jit
    def run(a: Any) -> Any:
        shape = jax.ShapeDtypeStruct(a.shape, a.dtype)
        return jax.pure_callback(lambda x: np.sort(np.asarray(x), 0), shape, a) + 1

    return Program(run, (put(mesh, normal(1, 16, 8), "x"),), mesh)


def partitioned_by_python(devices: int) -> Program:
    """A function whose sharding and per-device form are Python callbacks."""
    mesh = mesh_of(devices, "x")

    @custom_partitioning
    def normalized(a: Any) -> Any:
        return a / jnp.linalg.norm(a, axis=-1, keepdims=True)

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        rows = NamedSharding(mesh, P(arguments[0].sharding.spec[0], None))
        return mesh, lambda a: a / jnp.linalg.norm(a, axis=-1, keepdims=True), rows, (rows,)

    normalized.def_partition(
        partition=partition,
        infer_sharding_from_operands=lambda mesh, arguments, result: arguments[0].sharding,
        sharding_rule="i j -> i j",
    )
    run = jax.jit(lambda a: normalized(a * 2) + 1)
    return Program(run, (put(mesh, normal(1, 16, 8), "x", None),), mesh)


def random_generators(devices: int) -> Program:
    """Draws of many distributions from threefry and rbg keys, divided among the devices."""
    mesh = mesh_of(devices, "x")

    @jax.jit
    def run(seed: Any, a: Any) -> Any:
        keys = jax.random.split(jax.random.key(seed), 6)
        draws = (
            jax.random.normal(keys[0], a.shape),
            jax.random.gamma(keys[1], jnp.abs(a) + 0.5),
            jax.random.permutation(keys[2], a),
            jax.random.choice(keys[3], a.shape[1], (4,), replace=False),
            jax.random.truncated_normal(keys[4], -1, 1, (32,)),
            jax.random.poisson(keys[5], 3.0, (16,)),
        )
        bits = jax.random.bits(jax.random.key(7, impl="rbg"), (16, 4), jnp.uint32)
        return *draws, bits, a + draws[0]

    return Program(run, (jnp.uint32(11), put(mesh, normal(1, 16, 8), "x")), mesh)
