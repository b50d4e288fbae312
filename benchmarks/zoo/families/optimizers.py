"""Optimizers on a small network: Shampoo, Muon, accumulation, sharpness-aware steps, L-BFGS, clipped samples."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.zoo.program import Program, mesh_of, normal, put, scaled, shard_tree, training_step


def network() -> dict[str, Any]:
    return {"a": scaled(1, 16, 32), "b": scaled(2, 32, 16), "c": scaled(3, 16, 4)}


def loss(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(jnp.tanh(x @ w["a"]) @ w["b"]) @ w["c"] - y) ** 2)


def batch(mesh: Any) -> tuple[Any, Any]:
    return put(mesh, normal(4, 32, 16), "data"), put(mesh, normal(5, 32, 4), "data")


def step_with(optimizer: Any, devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")
    return training_step(loss, network(), batch(mesh), mesh, optimizer)


def muon(devices: int) -> Program:
    return step_with(optax.contrib.muon(0.02), devices)


def adafactor(devices: int) -> Program:
    return step_with(optax.adafactor(0.01, min_dim_size_to_factor=8), devices)


def accumulated_lamb(devices: int) -> Program:
    """Gradients accumulated over steps: the update is in a conditional."""
    return step_with(optax.MultiSteps(optax.lamb(0.01), every_k_schedule=2), devices)


def scheduled_adamw(devices: int) -> Program:
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.01, 10, 100)
    return step_with(optax.chain(optax.clip(0.5), optax.adamw(schedule), optax.ema(0.9)), devices)


def schedule_free(devices: int) -> Program:
    return step_with(optax.contrib.schedule_free_adamw(0.01), devices)


def shampoo(devices: int) -> Program:
    """Preconditioners by coupled Newton iterations for inverse fourth roots."""
    mesh = mesh_of(devices, "data", "model")

    def inverse_root(a: Any) -> Any:
        n = len(a)
        a = a + 1e-3 * jnp.trace(a) * jnp.eye(n)
        size = 5 / (2 * jnp.linalg.norm(a))

        def step(state: Any, _: Any) -> Any:
            m, h = state
            t = (5 * jnp.eye(n) - m) / 4
            t2 = t @ t
            return (t2 @ t2 @ m, h @ t), None

        return lax.scan(step, (a * size, jnp.eye(n) * size**0.25), None, length=8)[0][1]

    @jax.jit
    def step(w: Any, state: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(w, x, y)
        new_w, new_state = {}, {}
        for name, g in gradients.items():
            left, right = state[name]
            left, right = 0.9 * left + g @ g.T, 0.9 * right + g.T @ g
            new_w[name] = w[name] - 0.1 * inverse_root(left) @ g @ inverse_root(right)
            new_state[name] = (left, right)
        return new_w, new_state

    def start(k: int, n: int) -> Any:
        m = normal(k, n, n)
        return m @ m.T / n

    state = {name: (start(7, len(w)), start(8, w.shape[1])) for name, w in network().items()}
    arguments = (
        shard_tree(network(), mesh, "model"),
        shard_tree(state, mesh, "model"),
        *batch(mesh),
    )
    return Program(step, arguments, mesh)


def line_search(devices: int) -> Program:
    """L-BFGS with a zoom line search: loops within loops that end by data."""
    mesh = mesh_of(devices, "data")
    optimizer = optax.lbfgs(memory_size=3, linesearch=optax.scale_by_backtracking_linesearch(8))

    def quadratic(w: Any, x: Any) -> Any:
        return jnp.mean(jnp.log1p(jnp.exp(x @ w))) + 0.1 * jnp.sum(w**2)

    @jax.jit
    def run(w: Any, x: Any) -> Any:
        value = lambda w: quadratic(w, x)  # noqa: E731
        state = optimizer.init(w)
        for _ in range(2):
            loss_now, gradient = jax.value_and_grad(value)(w)
            updates, state = optimizer.update(
                gradient, state, w, value=loss_now, grad=gradient, value_fn=value
            )
            w = optax.apply_updates(w, updates)
        return w, loss_now

    return Program(run, (normal(1, 8), put(mesh, normal(2, 32, 8), "data")), mesh)


def sharpness_aware(devices: int) -> Program:
    """A gradient at the worst nearby point, with checkpointed layers."""
    mesh = mesh_of(devices, "data", "model")

    @jax.jit
    def step(w: Any, x: Any, y: Any) -> Any:
        g = jax.grad(jax.checkpoint(loss))(w, x, y)
        size = optax.global_norm(g)
        worst = jax.tree.map(lambda p, d: p + 0.05 * d / size, w, g)
        g = jax.grad(jax.checkpoint(loss, policy=jax.checkpoint_policies.dots_saveable))(
            worst, x, y
        )
        return jax.tree.map(lambda p, d: p - 0.1 * d, w, g), size

    return Program(step, (shard_tree(network(), mesh, "model"), *batch(mesh)), mesh)


def private_gradients(devices: int) -> Program:
    """Each sample's gradient by vmap, clipped by its norm, summed, with noise."""
    mesh = mesh_of(devices, "data")

    @jax.jit
    def step(w: Any, x: Any, y: Any) -> Any:
        each = jax.vmap(jax.grad(loss), (None, 0, 0))(w, x, y)
        norms = jax.vmap(optax.global_norm)(each)
        factor = jnp.minimum(1, 0.5 / norms)
        total = jax.tree.map(lambda g: jnp.einsum("b,bij->ij", factor, g), each)
        key = jax.random.key(0)
        noisy = jax.tree.map(lambda g: g + 0.01 * jax.random.normal(key, g.shape), total)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, noisy), norms

    return Program(step, (shard_tree(network(), mesh, None), *batch(mesh)), mesh)
