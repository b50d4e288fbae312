"""Programs of the zoo: a jitted function, its arguments and a mesh. This module needs JAX."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

P = PartitionSpec


@dataclass(frozen=True)
class Program:
    """A jitted function with concrete arguments.

    Arguments lie on the devices of `mesh`. The builder of a program takes the number of devices; with one device it
    must compute the same values from arguments of the same shapes, because that run is the reference of the others.
    """

    function: Any
    arguments: tuple[Any, ...]
    mesh: Mesh | None = None


Builder = Callable[[int], Program]


def mesh_of(devices: int, *names: str, explicit: bool = False) -> Mesh:
    """Mesh of `devices` host devices over the axes `names`; factors of two go round the axes in turn."""
    sizes = [1] * len(names)
    left, axis = devices, 0
    while left > 1:
        factor = 2 if left % 2 == 0 else left
        sizes[axis % len(names)] *= factor
        left //= factor
        axis += 1
    kind = AxisType.Explicit if explicit else AxisType.Auto
    grid = np.array(jax.devices()[:devices]).reshape(sizes)
    return Mesh(grid, names, axis_types=(kind,) * len(names))


def named(mesh: Mesh, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def put(mesh: Mesh, array: Any, *spec: Any) -> jax.Array:
    """Place `array` on `mesh`, divided as `spec` says."""
    return jax.device_put(array, named(mesh, *spec))


def constrain(mesh: Mesh, array: Any, *spec: Any) -> Any:
    return jax.lax.with_sharding_constraint(array, named(mesh, *spec))


def normal(seed: int, *shape: int, scale: float = 1.0, dtype: Any = np.float32) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return np.asarray(values, dtype)


def uniform(seed: int, *shape: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def integers(seed: int, high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int32)


def scaled(seed: int, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Normal weights of deviation 1/sqrt(fan in), where all dimensions but the last are the fan in."""
    return normal(seed, *shape, scale=1 / math.sqrt(max(1, math.prod(shape[:-1]))), dtype=dtype)


def spec_of(shape: tuple[int, ...], mesh: Mesh, axis: str | None) -> PartitionSpec:
    """Divide the last dimension that `axis` divides, of arrays with two or more dimensions."""
    if axis is None or len(shape) < 2 or mesh.shape[axis] == 1:
        return P()
    for dim in reversed(range(len(shape))):
        if shape[dim] % mesh.shape[axis] == 0 and shape[dim] >= 2 * mesh.shape[axis]:
            return P(*[axis if d == dim else None for d in range(len(shape))])
    return P()


def shard_tree(tree: Any, mesh: Mesh, axis: str | None) -> Any:
    """Place every array of `tree`, divided over `axis` where its shape allows."""
    return jax.tree.map(
        lambda x: jax.device_put(x, NamedSharding(mesh, spec_of(np.shape(x), mesh, axis))), tree
    )


def filled(initialize: Callable[..., Any], *arguments: Any, seed: int = 5) -> Any:
    """Arrays of the shapes that `initialize(*arguments)` returns, from a seed, without running it.

    Weights are normal with deviation 1/sqrt(fan in), scales and variances near 1, biases and means near 0.
    """
    rng = np.random.default_rng(seed)

    def fill(path: Any, leaf: Any) -> Any:
        name, values = jax.tree_util.keystr(path), rng.standard_normal(leaf.shape)
        if not jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
            return np.zeros(leaf.shape, leaf.dtype)
        if "scale" in name or "var" in name or "gamma" in name:
            values = 1 + 0.1 * np.abs(values)
        elif leaf.ndim < 2:
            values = 0.1 * values
        else:
            values = values / math.sqrt(math.prod(leaf.shape[:-1]))
        return values.astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, jax.eval_shape(initialize, *arguments))


def training_step(
    loss: Callable[..., Any],
    parameters: Any,
    batch: tuple[Any, ...],
    mesh: Mesh,
    optimizer: Any,
    *,
    axis: str | None = "model",
    donate: bool = True,
) -> Program:
    """Step of `optimizer` (optax) on `loss(parameters, *batch)`; parameters and state are divided over `axis`."""
    import optax

    def step(values: Any, state: Any, *data: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(values, *data)
        updates, state = optimizer.update(gradients, state, values)
        return optax.apply_updates(values, updates), state, value

    placed = shard_tree(parameters, mesh, axis)
    state = shard_tree(jax.jit(optimizer.init)(parameters), mesh, axis)
    jitted = jax.jit(step, donate_argnums=(0, 1) if donate else ())
    return Program(jitted, (placed, state, *batch), mesh)


def cross_entropy(logits: Any, labels: Any) -> Any:
    import jax.numpy as jnp

    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -jnp.mean(picked)
