"""Ways to divide programs: fully sharded data with tensor and sequence parallelism, explicit types, uneven sizes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding

from benchmarks.zoo.program import (
    P,
    Program,
    constrain,
    integers,
    mesh_of,
    named,
    normal,
    put,
    scaled,
    training_step,
)


def fsdp_tensor_sequence(devices: int) -> Program:
    """A transformer layer with weights divided over two axes and activations by sequence between the products."""
    mesh = mesh_of(devices, "data", "model")
    d, f = 32, 64

    def loss(w: Any, x: Any) -> Any:
        x = constrain(mesh, x, "data", "model")
        h = x * lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)
        q, k, v = jnp.moveaxis(jnp.einsum("bsd,dnhk->bsnhk", h, w["qkv"]), 2, 0)
        scores = jnp.einsum("bqhk,bthk->bhqt", q, k) / 4
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[2:], bool)), scores, -1e9)
        o = jnp.einsum("bhqt,bthk->bqhk", jax.nn.softmax(scores), v)
        x = constrain(mesh, x + jnp.einsum("bqhk,hkd->bqd", o, w["o"]), "data", "model")
        h = constrain(mesh, jax.nn.gelu(x @ w["up"]), "data", None, "model")
        return jnp.mean(constrain(mesh, x + h @ w["down"], "data", "model") ** 2)

    weights = {
        "qkv": put(mesh, normal(1, d, 3, 4, 8, scale=0.2), "data", None, "model"),
        "o": put(mesh, normal(2, 4, 8, d, scale=0.2), "model", None, "data"),
        "up": put(mesh, scaled(3, d, f), "data", "model"),
        "down": put(mesh, scaled(4, f, d), "model", "data"),
    }
    optimizer = optax.adamw(1e-3)

    def step(w: Any, state: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, x)
        updates, state = optimizer.update(gradients, state, w)
        return optax.apply_updates(w, updates), state, value

    def like(leaf: Any) -> Any:
        same = [w for w in weights.values() if w.shape == leaf.shape]
        return jax.device_put(leaf, same[0].sharding if same else named(mesh))

    state = jax.tree.map(like, jax.jit(optimizer.init)(weights))
    x = put(mesh, normal(5, 4, 16, d), "data", "model")
    return Program(jax.jit(step, donate_argnums=(0, 1)), (weights, state, x), mesh)


def explicit_mesh(devices: int) -> Program:
    """Shardings in types: products, a reshard and a gradient."""
    mesh = mesh_of(devices, "x", "y", explicit=True)

    def loss(w: Any, a: Any) -> Any:
        h = jnp.einsum("bi,ij->bj", a, w, out_sharding=NamedSharding(mesh, P("x", "y")))
        h = jax.sharding.reshard(jnp.tanh(h), NamedSharding(mesh, P("x", None)))
        return jnp.sum(h**2)

    def run(w: Any, a: Any) -> Any:
        return jax.value_and_grad(loss)(w, a)

    with jax.set_mesh(mesh):
        arguments = (
            put(mesh, normal(1, 16, 24), None, "y"),
            put(mesh, normal(2, 8, 16), "x", None),
        )
    return Program(jax.jit(run), arguments, mesh)


def uneven_sizes(devices: int) -> Program:
    """Sizes that no number of devices divides, through products, windows, sorts, sums and gathers."""
    mesh = mesh_of(devices, "x", "y")

    @jax.jit
    def run(a: Any, b: Any, w: Any) -> Any:
        a = constrain(mesh, a, "x", "y")
        c = constrain(mesh, a @ constrain(mesh, b, "y", "x"), "y", "x")
        pooled = lax.reduce_window(c, -jnp.inf, lax.max, (3, 3), (2, 2), "SAME")
        smooth = jnp.convolve(c.ravel(), w, "same").reshape(c.shape)
        ordered = jnp.sort(constrain(mesh, smooth, "x"), 0)
        return (
            pooled,
            ordered,
            jnp.cumsum(c, 1),
            c[:, ::-2],
            jnp.concatenate([c, a[:, :5]], 1),
            c.argmin(0),
        )

    return Program(
        run,
        (put(mesh, normal(1, 13, 11)), put(mesh, normal(2, 11, 7)), put(mesh, normal(3, 5))),
        mesh,
    )


def several_meshes(devices: int) -> Program:
    """Constraints of two meshes over the same devices, of one axis and of two in another order."""
    mesh, flat = mesh_of(devices, "x", "y"), mesh_of(devices, "z")

    @jax.jit
    def run(a: Any, b: Any) -> Any:
        a = constrain(mesh, a, "y", "x")
        c = constrain(flat, a @ b, None, "z")
        d = constrain(mesh, jnp.sin(c), ("y", "x"))
        return constrain(flat, d + c, "z"), c.sum(1)

    return Program(
        run, (put(mesh, normal(1, 16, 16), "x", "y"), put(mesh, normal(2, 16, 16), "x")), mesh
    )


def sharded_optimizer_state(devices: int) -> Program:
    """Gradients of replicated weights are reduced into the divided state, new weights gathered."""
    mesh = mesh_of(devices, "data")

    def step(w: Any, m: Any, x: Any, y: Any) -> Any:
        gradient = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)
        m = constrain(mesh, 0.9 * m + constrain(mesh, gradient, "data"), "data")
        return constrain(mesh, w - constrain(mesh, 0.1 * m, "data")), m

    arguments = (
        put(mesh, scaled(1, 32, 16)),
        put(mesh, normal(2, 32, 16, scale=0.01), "data"),
        put(mesh, normal(3, 16, 32), "data"),
        put(mesh, normal(4, 16, 16), "data"),
    )
    return Program(jax.jit(step, donate_argnums=(0, 1)), arguments, mesh)


def vocabulary_parallel(devices: int) -> Program:
    """Embedding and cross-entropy over a divided vocabulary, in bf16 with f32 sums."""
    mesh = mesh_of(devices, "data", "model")

    def loss(w: Any, tokens: Any) -> Any:
        x = w["embed"][tokens[:, :-1]].astype(jnp.bfloat16)
        logits = jnp.einsum(
            "bsd,vd->bsv", x, w["head"].astype(jnp.bfloat16), preferred_element_type=jnp.float32
        )
        logits = constrain(mesh, logits, "data", None, "model")
        picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    weights = {"embed": normal(1, 64, 16), "head": normal(2, 64, 16)}
    tokens = put(mesh, integers(3, 64, 8, 9), "data")
    return training_step(loss, weights, (tokens,), mesh, optax.sgd(0.1))


def shuffled_pipeline(devices: int) -> Program:
    """A pipeline written as a roll over a divided dimension of stages, with the layers by vmap."""
    mesh = mesh_of(devices, "stage")
    stages, micro = 8, 4

    @jax.jit
    def run(w: Any, xs: Any) -> Any:
        def tick(state: Any, t: Any) -> Any:
            fresh = jnp.where(t < micro, xs[jnp.minimum(t, micro - 1)], 0)
            state = jnp.roll(state, 1, 0).at[0].set(fresh)
            state = jax.vmap(lambda w, x: jnp.tanh(x @ w))(w, constrain(mesh, state, "stage"))
            return constrain(mesh, state, "stage"), state[-1]

        start = jnp.zeros((stages, *xs.shape[1:]))
        return lax.scan(tick, start, jnp.arange(micro + stages - 1))[1][stages - 1 :]

    return Program(
        run,
        (put(mesh, scaled(1, stages, 16, 16), "stage"), put(mesh, normal(2, micro, 4, 16))),
        mesh,
    )


def own_reducers(devices: int) -> Program:
    """Reducers that do something to elements, over divided dimensions, of uneven sizes too; windows and pairs."""
    mesh = mesh_of(devices, "x")

    def largest(a: Any, b: Any) -> Any:
        return lax.max(a, jnp.abs(b))

    def squares(a: Any, b: Any) -> Any:
        return a + b * b

    def discounted(a: Any, b: Any) -> Any:
        return 0.5 * a + b

    def dot_and_top(a: Any, b: Any) -> Any:
        return a[0] + b[0] * b[1], lax.max(a[1], lax.min(b[1], 1.5))

    @jax.jit
    def run(x: Any, y: Any) -> Any:
        zero = np.float32(0)
        uneven = constrain(mesh, x[:13], "x")
        across = constrain(mesh, x.T, "x")
        narrow = (4 * x).astype(jnp.bfloat16)
        return (
            lax.reduce(uneven, zero, largest, (0,)),
            lax.reduce(uneven, zero, largest, (0, 1)),
            lax.reduce(x, zero, squares, (1,)),
            lax.reduce(x, np.float32(2), discounted, (1,)),
            lax.reduce(across, zero, discounted, (1,)),
            lax.reduce((x, y), (zero, np.float32(-9)), dot_and_top, (1,)),
            lax.reduce((4 * x).astype(jnp.int32), np.int32(0), largest, (0,)),
            lax.reduce(narrow, jnp.zeros((), jnp.bfloat16), largest, (0,)),
            lax.reduce_window(x, zero, largest, (3, 2), (2, 1), "SAME"),
            lax.reduce_window(x, zero, squares, (1, 5), (1, 2), "VALID"),
            lax.cumlogsumexp(narrow / 4, axis=1),
        )

    return Program(
        run, (put(mesh, normal(1, 16, 24), "x"), put(mesh, normal(2, 16, 24), "x")), mesh
    )
