"""Recurrences: LSTM and GRU by scan, state-space models by associative scan, dynamic programs over sequences."""

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
    shard_tree,
    training_step,
    uniform,
)


def linear(left: Any, right: Any) -> Any:
    """Compose two steps of h = a h + b, each given as (a, b)."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def lstm_scan(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")
    width = 32
    weights = {"x": scaled(1, 16, 4 * width), "h": scaled(2, width, 4 * width), "b": normal(3, 128)}

    def forward(w: Any, xs: Any) -> Any:
        def cell(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(x @ w["x"] + h @ w["h"] + w["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((xs.shape[1], width))
        return lax.scan(cell, (zero, zero), xs)[1]

    def loss(w: Any, xs: Any) -> Any:
        return jnp.mean(forward(w, xs) ** 2)

    xs = put(mesh, normal(4, 12, 8, 16), None, "data")
    return training_step(loss, weights, (xs,), mesh, optax.sgd(0.1))


def gru_reversed_scan(devices: int) -> Program:
    """Bidirectional GRU; the backward direction is a reversed scan, unrolled by 2."""
    mesh = mesh_of(devices, "data")
    width = 16
    weights = [{"x": scaled(k, 8, 3 * width), "h": scaled(k + 9, width, 3 * width)} for k in (1, 2)]

    def direction(w: Any, xs: Any, reverse: bool) -> Any:
        def cell(h: Any, x: Any) -> Any:
            xr, xz, xn = jnp.split(x @ w["x"], 3, -1)
            hr, hz, hn = jnp.split(h @ w["h"], 3, -1)
            z = jax.nn.sigmoid(xz + hz)
            h = (1 - z) * jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn) + z * h
            return h, h

        zero = jnp.zeros((xs.shape[1], width))
        return lax.scan(cell, zero, xs, reverse=reverse, unroll=2)[1]

    def loss(w: Any, xs: Any) -> Any:
        both = jnp.concatenate([direction(w[0], xs, False), direction(w[1], xs, True)], -1)
        return jnp.mean(jnp.cumsum(both, 0) ** 2)

    xs = put(mesh, normal(4, 10, 8, 8), None, "data")
    return training_step(loss, weights, (xs,), mesh, optax.rmsprop(1e-2), axis=None)


def ssm_associative_scan(devices: int) -> Program:
    """Diagonal linear recurrence over a sequence that is divided among the devices."""
    mesh = mesh_of(devices, "seq")

    @jax.jit
    def run(decay: Any, xs: Any) -> Any:
        a = jnp.broadcast_to(jax.nn.sigmoid(decay), xs.shape)
        _, hs = lax.associative_scan(linear, (a, xs))
        return hs, jax.grad(lambda d: jnp.sum(lax.associative_scan(linear, (d * a, xs))[1]))(0.9)

    return Program(run, (put(mesh, normal(1, 16)), put(mesh, normal(2, 64, 16), "seq")), mesh)


def mamba_selective(devices: int) -> Program:
    """Selective state-space layer: steps and gates depend on the input."""
    mesh = mesh_of(devices, "data", "model")
    d, n = 16, 8
    weights = {
        "in": scaled(1, d, 2 * d),
        "dt": scaled(2, d, d),
        "b": scaled(3, d, n),
        "c": scaled(4, d, n),
        "a": uniform(5, d, n, low=0.5, high=2.0),
        "out": scaled(6, d, d),
        "conv": normal(7, 4, 1, d, scale=0.5),
    }

    def layer(w: Any, x: Any) -> Any:
        u, gate = jnp.split(x @ w["in"], 2, -1)
        u = lax.conv_general_dilated(
            u,
            w["conv"],
            (1,),
            [(3, 0)],
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=d,
        )
        u = constrain(mesh, jax.nn.silu(u), "data", None, "model")
        dt = jax.nn.softplus(u @ w["dt"])
        a = jnp.exp(-dt[..., None] * w["a"])
        b = (dt * u)[..., None] * (u @ w["b"])[:, :, None, :]
        h = lax.associative_scan(linear, (a, b), axis=1)[1]
        return (jnp.einsum("btdn,btn->btd", h, u @ w["c"]) * jax.nn.silu(gate)) @ w["out"]

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean((layer(w, x) - x) ** 2)

    x = put(mesh, normal(8, 8, 16, d), "data")
    return training_step(loss, weights, (x,), mesh, optax.adam(1e-3))


def linear_attention_chunks(devices: int) -> Program:
    """Gated linear attention in chunks, as a scan that carries the state."""
    mesh = mesh_of(devices, "heads")

    @jax.jit
    def run(q: Any, k: Any, v: Any, decay: Any) -> Any:
        def chunk(state: Any, qkv: Any) -> Any:
            q, k, v = qkv
            scores = jnp.tril(jnp.einsum("hqd,hkd->hqk", q, k))
            out = scores @ v + jnp.einsum("hqd,hde->hqe", q, state)
            return decay[:, None, None] * state + jnp.einsum("hkd,hke->hde", k, v), out

        chunks = [jnp.moveaxis(x.reshape(8, 4, 8, 16), 1, 0) for x in (q, k, v)]
        state, out = lax.scan(chunk, jnp.zeros((8, 16, 16)), tuple(chunks))
        return state, out

    arrays = [put(mesh, normal(k, 8, 32, 16, scale=0.3), "heads") for k in range(3)]
    return Program(run, (*arrays, put(mesh, uniform(4, 8), "heads")), mesh)


def viterbi(devices: int) -> Program:
    """Best path of a hidden Markov model: a scan of maxima and a reversed one that follows the pointers."""
    mesh = mesh_of(devices, "batch")

    @jax.jit
    def run(transitions: Any, emissions: Any) -> Any:
        def forward(score: Any, e: Any) -> Any:
            all_scores = score[:, :, None] + transitions
            return all_scores.max(1) + e, all_scores.argmax(1)

        first, rest = emissions[0], emissions[1:]
        score, pointers = lax.scan(forward, first, rest)

        def backward(state: Any, pointer: Any) -> Any:
            return jnp.take_along_axis(pointer, state[:, None], 1)[:, 0], state

        last = score.argmax(-1)
        start, states = lax.scan(backward, last, pointers, reverse=True)
        return score.max(-1), jnp.concatenate([start[None], states])

    arguments = (put(mesh, normal(1, 6, 6)), put(mesh, normal(2, 12, 16, 6), None, "batch"))
    return Program(run, arguments, mesh)


def edit_distance(devices: int) -> Program:
    """Levenshtein distance of many pairs by a scan within a scan, of integers."""
    mesh = mesh_of(devices, "batch")

    def one(a: Any, b: Any) -> Any:
        def row(previous: Any, letter: Any) -> Any:
            def cell(left: Any, inputs: Any) -> Any:
                up, diagonal, other = inputs
                best = jnp.minimum(jnp.minimum(left, up) + 1, diagonal + (letter != other))
                return best, best

            first = previous[0] + 1
            _, rest = lax.scan(cell, first, (previous[1:], previous[:-1], b))
            return jnp.concatenate([first[None], rest]), None

        return lax.scan(row, jnp.arange(b.size + 1), a)[0][-1]

    arrays = [put(mesh, integers(k, 4, 16, 10), "batch") for k in (1, 2)]
    return Program(jax.jit(jax.vmap(one)), tuple(arrays), mesh)


def kalman_filter(devices: int) -> Program:
    """Kalman filter with small Cholesky solves in a scan, over a batch of series."""
    mesh = mesh_of(devices, "batch")
    transition, observe = jnp.eye(4) + 0.1 * normal(1, 4, 4), normal(2, 2, 4)

    def one(ys: Any) -> Any:
        def step(carry: Any, y: Any) -> Any:
            mean, cov = carry
            mean, cov = transition @ mean, transition @ cov @ transition.T + 0.1 * jnp.eye(4)
            s = observe @ cov @ observe.T + jnp.eye(2)
            gain = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(s), observe @ cov).T
            mean = mean + gain @ (y - observe @ mean)
            return (mean, cov - gain @ observe @ cov), mean

        return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), ys)

    run = jax.jit(jax.vmap(one))
    return Program(run, (put(mesh, normal(3, 8, 10, 2), "batch"),), mesh)


def lstm_with_dropout(devices: int) -> Program:
    """Recurrence whose random masks come from keys split in the scan."""
    mesh = mesh_of(devices, "data")

    @jax.jit
    def run(seed: Any, w: Any, xs: Any) -> Any:
        def cell(carry: Any, x: Any) -> Any:
            h, key = carry
            key, sub = jax.random.split(key)
            keep = jax.random.bernoulli(sub, 0.8, h.shape)
            h = jnp.tanh(jnp.where(keep, h / 0.8, 0.0) @ w + x)
            return (h, key), h.mean()

        (h, _), means = lax.scan(cell, (jnp.zeros((8, 16)), jax.random.key(seed)), xs)
        return h, means

    xs = put(mesh, normal(4, 6, 8, 16), None, "data")
    return Program(run, (jnp.uint32(3), *shard_tree([scaled(1, 16, 16)], mesh, None), xs), mesh)
