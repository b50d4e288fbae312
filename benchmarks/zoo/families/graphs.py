"""Graphs: message passing by segment sums, attention by segment softmax, PageRank, shortest paths, label spreading."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.zoo.program import (
    Program,
    integers,
    mesh_of,
    normal,
    put,
    scaled,
    training_step,
    uniform,
)

NODES, EDGES = 40, 128


def edges(mesh: Any) -> tuple[Any, Any]:
    """Senders and receivers, divided by edges."""
    return tuple(put(mesh, integers(k, NODES, EDGES), "edges") for k in (11, 12))


def graph_network(devices: int) -> Program:
    """Edge and node updates, sums over received messages, a gradient through gathers and scatters."""
    mesh = mesh_of(devices, "edges")
    weights = {"edge": scaled(1, 24, 16), "node": scaled(2, 24, 8), "out": scaled(3, 8, 1)}

    def loss(w: Any, nodes: Any, features: Any, senders: Any, receivers: Any) -> Any:
        for _ in range(2):
            pair = jnp.concatenate([nodes[senders], nodes[receivers], features], -1)
            messages = jax.nn.relu(pair @ w["edge"])
            total = jax.ops.segment_sum(messages, receivers, NODES)
            nodes = nodes + jnp.tanh(jnp.concatenate([nodes, total], -1) @ w["node"])
        return jnp.mean((nodes @ w["out"]) ** 2)

    batch = (put(mesh, normal(4, NODES, 8)), put(mesh, normal(5, EDGES, 8), "edges"), *edges(mesh))
    return training_step(loss, weights, batch, mesh, optax.adam(1e-2), axis=None)


def graph_attention(devices: int) -> Program:
    mesh = mesh_of(devices, "edges")

    @jax.jit
    def run(nodes: Any, w: Any, a: Any, senders: Any, receivers: Any) -> Any:
        h = nodes @ w
        scores = jax.nn.leaky_relu(jnp.concatenate([h[senders], h[receivers]], -1) @ a)
        top = jax.ops.segment_max(scores, receivers, NODES)
        p = jnp.exp(scores - top[receivers])
        p = p / jax.ops.segment_sum(p, receivers, NODES)[receivers]
        out = jax.ops.segment_sum(p[:, None] * h[senders], receivers, NODES)
        return out, jax.ops.segment_min(h[senders], receivers, NODES), p

    weights = (normal(1, NODES, 8), scaled(2, 8, 8), scaled(3, 16))
    return Program(run, (*weights, *edges(mesh)), mesh)


def page_rank(devices: int) -> Program:
    """Power iteration until it stands still, at most 100 times."""
    mesh = mesh_of(devices, "edges")

    @jax.jit
    def run(senders: Any, receivers: Any) -> Any:
        degree = jnp.maximum(jax.ops.segment_sum(jnp.ones(EDGES), senders, NODES), 1)

        def step(state: Any) -> Any:
            rank, _, count = state
            flow = (rank / degree)[senders]
            new = 0.15 / NODES + 0.85 * jax.ops.segment_sum(flow, receivers, NODES)
            return new, jnp.abs(new - rank).sum(), count + 1

        going = lambda state: (state[1] > 1e-4) & (state[2] < 100)  # noqa: E731
        return lax.while_loop(going, step, (jnp.full(NODES, 1 / NODES), jnp.inf, 0))

    return Program(run, edges(mesh), mesh)


def shortest_paths(devices: int) -> Program:
    """Bellman-Ford by scatter-min and Floyd-Warshall by a loop over divided rows."""
    mesh = mesh_of(devices, "edges")

    @jax.jit
    def run(senders: Any, receivers: Any, lengths: Any, matrix: Any) -> Any:
        start = jnp.full(NODES, 1e9).at[0].set(0)
        relax = lambda _, d: d.at[receivers].min(d[senders] + lengths)  # noqa: E731
        from_first = lax.fori_loop(0, 10, relax, start)
        through = lambda k, d: jnp.minimum(d, d[:, k, None] + d[None, k])  # noqa: E731
        return from_first, lax.fori_loop(0, 16, through, matrix)

    arguments = (put(mesh, uniform(3, EDGES), "edges"), put(mesh, uniform(4, 16, 16), "edges"))
    return Program(run, (*edges(mesh), *arguments), mesh)


def triangle_counts(devices: int) -> Program:
    """Counts by products of a boolean adjacency matrix, components by spreading labels, a histogram of degrees."""
    mesh = mesh_of(devices, "edges")

    @jax.jit
    def run(senders: Any, receivers: Any) -> Any:
        adjacent = jnp.zeros((NODES, NODES), bool).at[senders, receivers].set(True)
        adjacent = (adjacent | adjacent.T) & ~jnp.eye(NODES, dtype=bool)
        a = adjacent.astype(jnp.int32)
        triangles = jnp.trace(a @ a @ a) // 6

        def spread(state: Any) -> Any:
            labels, _ = state
            new = jnp.minimum(labels, jnp.where(adjacent, labels, NODES).min(1))
            return new, jnp.any(new != labels)

        start = (jnp.arange(NODES), jnp.bool_(True))
        labels, _ = lax.while_loop(lambda s: s[1], spread, start)
        return triangles, labels, jnp.bincount(a.sum(1), length=20)

    return Program(run, edges(mesh), mesh)
