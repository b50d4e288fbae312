"""Mixtures of experts: by capacity, by ragged products, by soft routing, and embeddings of many tables."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.zoo.program import (
    Program,
    constrain,
    integers,
    mesh_of,
    normal,
    put,
    scaled,
    training_step,
)


def moe_capacity(devices: int) -> Program:
    """Two experts for each token by top-k, a limited number of places in each expert."""
    mesh = mesh_of(devices, "data", "model")
    experts, capacity, d = 8, 12, 16
    weights = {
        "gate": scaled(1, d, experts),
        "up": scaled(2, experts, d, 32),
        "down": scaled(3, experts, 32, d),
    }

    def loss(w: Any, x: Any) -> Any:
        probability = jax.nn.softmax(x @ w["gate"])
        value, chosen = lax.top_k(probability, 2)
        onehot = jax.nn.one_hot(chosen, experts).reshape(-1, experts)
        place = (jnp.cumsum(onehot, 0) - 1) * onehot
        kept = (place < capacity) * onehot
        slots = jax.nn.one_hot(place.astype(jnp.int32), capacity) * kept[..., None]
        slots = slots.reshape(x.shape[0], 2, experts, capacity)
        dispatched = constrain(mesh, jnp.einsum("td,tkec->ecd", x, slots), "model")
        h = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", dispatched, w["up"]))
        back = jnp.einsum("ecf,efd->ecd", h, w["down"])
        out = jnp.einsum("ecd,tkec,tk->td", back, slots, value)
        balance = jnp.sum(probability.mean(0) * onehot.mean(0))
        return jnp.mean((out - x) ** 2) + 0.01 * balance

    x = put(mesh, normal(4, 32, d), "data")
    return training_step(loss, weights, (x,), mesh, optax.adam(1e-3))


def moe_ragged_dot(devices: int) -> Program:
    """Tokens sorted by expert and multiplied by groups of uneven size."""
    mesh = mesh_of(devices, "data")
    d, experts = 16, 4

    @jax.jit
    def run(x: Any, gate: Any, w: Any) -> Any:
        expert = jnp.argmax(x @ gate, -1)
        order = jnp.argsort(expert, stable=True)
        sizes = jnp.bincount(expert, length=experts).astype(jnp.int32)
        out = lax.ragged_dot(x[order], w, sizes)
        return jnp.zeros_like(x).at[order].set(jax.nn.relu(out)), sizes

    return Program(
        run,
        (put(mesh, normal(1, 32, d), "data"), scaled(2, d, experts), scaled(3, experts, d, d)),
        mesh,
    )


def moe_ragged_dot_gradient(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")

    def loss(w: Any, x: Any) -> Any:
        sizes = jnp.array([5, 0, 16, 11], jnp.int32)
        return jnp.sum(jnp.tanh(lax.ragged_dot(x, w, sizes)) ** 2)

    run = jax.jit(jax.value_and_grad(loss, (0, 1)))
    return Program(
        run,
        (
            put(mesh, scaled(1, 4, 16, 24), None, None, "model"),
            put(mesh, normal(2, 32, 16), "data"),
        ),
        mesh,
    )


def soft_moe(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "expert")

    @jax.jit
    def run(x: Any, phi: Any, w: Any) -> Any:
        logits = jnp.einsum("btd,des->btes", x, phi)
        dispatch = jax.nn.softmax(logits, 1)
        combine = jax.nn.softmax(logits.reshape(*logits.shape[:2], -1), -1).reshape(logits.shape)
        slots = constrain(mesh, jnp.einsum("btd,btes->besd", x, dispatch), "data", "expert")
        out = jax.nn.gelu(jnp.einsum("besd,edf->besf", slots, w))
        return jnp.einsum("besf,btes->btf", out, combine)

    arguments = (
        put(mesh, normal(1, 8, 12, 16), "data"),
        normal(2, 16, 4, 3),
        put(mesh, scaled(3, 4, 16, 16), "expert"),
    )
    return Program(run, arguments, mesh)


def embedding_tables(devices: int) -> Program:
    """Recommender: bags of rows from tables divided by rows, pairwise products, sparse gradients by scatter."""
    mesh = mesh_of(devices, "data", "rows")

    def loss(tables: Any, top: Any, bags: Any, dense: Any) -> Any:
        rows = jax.vmap(lambda t, b: t[b].mean(1), (0, 1), 1)(tables, bags)
        features = jnp.concatenate([rows, dense[:, None]], 1)
        products = jnp.einsum("bid,bjd->bij", features, features)
        upper = products[:, *jnp.triu_indices(5, 1)]
        return jnp.mean(jnp.logaddexp(0, upper @ top))

    @jax.jit
    def step(tables: Any, top: Any, bags: Any, dense: Any) -> Any:
        value, (tables_gradient, top_gradient) = jax.value_and_grad(loss, (0, 1))(
            tables, top, bags, dense
        )
        return tables - 0.1 * tables_gradient, top - 0.1 * top_gradient, value

    arguments = (
        put(mesh, normal(1, 4, 64, 8), None, "rows"),
        put(mesh, normal(2, 10)),
        put(mesh, integers(3, 64, 16, 4, 5), "data"),
        put(mesh, normal(4, 16, 8), "data"),
    )
    return Program(step, arguments, mesh)
