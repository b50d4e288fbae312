"""Differentiation: own rules, implicit functions, second derivatives, learning to learn, kept and computed again."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.zoo.program import Program, integers, mesh_of, normal, put, scaled, training_step


def flash_attention(devices: int) -> Program:
    """Attention by blocks in scans, with a backward pass of its own."""
    mesh = mesh_of(devices, "data", "heads")

    def blocks(x: Any) -> Any:
        return jnp.moveaxis(x.reshape(*x.shape[:2], -1, 8, x.shape[-1]), 2, 0)

    @jax.custom_vjp
    def attend(q: Any, k: Any, v: Any) -> Any:
        return forward(q, k, v)[0]

    def forward(q: Any, k: Any, v: Any) -> Any:
        def step(state: Any, kv: Any) -> Any:
            top, total, out = state
            scores = jnp.einsum("bhqd,bhkd->bhqk", q, kv[0]) / 4
            new = jnp.maximum(top, scores.max(-1))
            p, old = jnp.exp(scores - new[..., None]), jnp.exp(top - new)
            out = out * old[..., None] + jnp.einsum("bhqk,bhkd->bhqd", p, kv[1])
            return (new, total * old + p.sum(-1), out), None

        start = (jnp.full(q.shape[:3], -jnp.inf), jnp.zeros(q.shape[:3]), jnp.zeros_like(q))
        (top, total, out), _ = lax.scan(step, start, (blocks(k), blocks(v)))
        out = out / total[..., None]
        return out, (q, k, v, out, top + jnp.log(total))

    def backward(kept: Any, g: Any) -> Any:
        q, k, v, out, log_total = kept
        own = (g * out).sum(-1)

        def step(dq: Any, kv: Any) -> Any:
            p = jnp.exp(jnp.einsum("bhqd,bhkd->bhqk", q, kv[0]) / 4 - log_total[..., None])
            ds = p * (jnp.einsum("bhqd,bhkd->bhqk", g, kv[1]) - own[..., None]) / 4
            dq = dq + jnp.einsum("bhqk,bhkd->bhqd", ds, kv[0])
            dk = jnp.einsum("bhqk,bhqd->bhkd", ds, q)
            return dq, (dk, jnp.einsum("bhqk,bhqd->bhkd", p, g))

        dq, pieces = lax.scan(step, jnp.zeros_like(q), (blocks(k), blocks(v)))
        return dq, *(jnp.moveaxis(x, 0, 2).reshape(k.shape) for x in pieces)

    attend.defvjp(forward, backward)
    run = jax.jit(jax.value_and_grad(lambda *x: jnp.sum(attend(*x) ** 2), (0, 1, 2)))
    arrays = tuple(put(mesh, normal(k, 4, 4, 32, 16), "data", "heads") for k in range(3))
    return Program(run, arrays, mesh)


def fixed_point(devices: int) -> Program:
    """Deep equilibrium layer: a loop forwards, an implicit gradient by another loop."""
    mesh = mesh_of(devices, "data")

    def iterate(f: Any, start: Any) -> Any:
        going = lambda s: (s[2] < 50) & (jnp.abs(s[0] - s[1]).max() > 1e-5)  # noqa: E731
        return lax.while_loop(going, lambda s: (f(s[0]), s[0], s[2] + 1), (f(start), start, 0))[0]

    @partial(jax.custom_vjp)
    def layer(w: Any, x: Any) -> Any:
        return iterate(lambda z: jnp.tanh(0.5 * z @ w + x), jnp.zeros_like(x))

    def forward(w: Any, x: Any) -> Any:
        z = layer(w, x)
        return z, (w, x, z)

    def backward(kept: Any, g: Any) -> Any:
        w, x, z = kept
        _, pull_z = jax.vjp(lambda z: jnp.tanh(0.5 * z @ w + x), z)
        u = iterate(lambda u: g + pull_z(u)[0], jnp.zeros_like(g))
        return jax.vjp(lambda w, x: jnp.tanh(0.5 * z @ w + x), w, x)[1](u)

    layer.defvjp(forward, backward)
    run = jax.jit(jax.value_and_grad(lambda w, x: jnp.sum(layer(w, x) ** 2), (0, 1)))
    return Program(run, (scaled(1, 16, 16), put(mesh, normal(2, 16, 16), "data")), mesh)


def hessian_products(devices: int) -> Program:
    """Forward over reverse, a full Hessian, a Jacobian, and a Laplacian by jet-like vmaps."""
    mesh = mesh_of(devices, "x")

    def energy(x: Any, a: Any) -> Any:
        return jnp.sum(jnp.log(jnp.cosh(a @ x))) + 0.1 * jnp.sum(x**4)

    @jax.jit
    def run(x: Any, v: Any, a: Any) -> Any:
        product = jax.jvp(jax.grad(lambda x: energy(x, a)), (x,), (v,))[1]
        hessian = jax.hessian(energy)(x, a)
        return product, hessian, jnp.trace(hessian), jax.jacrev(lambda x: jnp.sin(a @ x))(x)

    return Program(run, (normal(1, 8), normal(2, 8), put(mesh, normal(3, 16, 8), "x")), mesh)


def meta_learning(devices: int) -> Program:
    """Gradient through gradient steps, for divided tasks."""
    mesh = mesh_of(devices, "task")

    def fit(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2)

    def adapted(w: Any, x: Any, y: Any) -> Any:
        inner = jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(fit)(w, x[0], y[0]))
        return fit(inner, x[1], y[1])

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jax.vmap(adapted, (None, 0, 0))(w, x, y).mean()

    weights = {"a": scaled(1, 4, 16), "b": scaled(2, 16, 1)}
    batch = (put(mesh, normal(3, 8, 2, 10, 4), "task"), put(mesh, normal(4, 8, 2, 10, 1), "task"))
    return training_step(loss, weights, batch, mesh, optax.adam(1e-2), axis=None)


def checkpointed_scan(devices: int) -> Program:
    """Layers in a scan, each computed again in the gradient, weights gathered layer by layer."""
    mesh = mesh_of(devices, "data")

    def loss(w: Any, x: Any) -> Any:
        @partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
        def layer(x: Any, w: Any) -> Any:
            return x + jnp.tanh(x @ w["up"]) @ w["down"], None

        return jnp.mean(lax.scan(layer, x, w)[0] ** 2)

    weights = {"up": 0.3 * normal(1, 4, 16, 32), "down": 0.3 * normal(2, 4, 32, 16)}
    return training_step(
        loss, weights, (put(mesh, normal(3, 16, 16), "data"),), mesh, optax.sgd(0.1), axis="data"
    )


def sequence_loss(devices: int) -> Program:
    """Connectionist temporal classification of optax and a linear-chain random field."""
    mesh = mesh_of(devices, "data")

    def loss(w: Any, x: Any, labels: Any) -> Any:
        logits = x @ w["out"]
        ctc = optax.ctc_loss(logits, jnp.zeros(logits.shape[:2]), labels, labels == 0)

        def step(alpha: Any, e: Any) -> Any:
            return jax.nn.logsumexp(alpha[:, :, None] + w["pairs"], 1) + e, None

        alpha, _ = lax.scan(step, logits[:, 0], jnp.moveaxis(logits[:, 1:], 1, 0))
        return ctc.mean() + jax.nn.logsumexp(alpha, -1).mean()

    weights = {"out": scaled(1, 8, 6), "pairs": normal(2, 6, 6)}
    batch = (put(mesh, normal(3, 8, 12, 8), "data"), put(mesh, integers(4, 6, 8, 4), "data"))
    return training_step(loss, weights, batch, mesh, optax.sgd(0.1), axis=None)
