"""Models of haiku: a decoder, a residual network with batch norm, an LSTM, vector quantization."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks.zoo.program import (
    Program,
    cross_entropy,
    filled,
    integers,
    mesh_of,
    normal,
    put,
    shard_tree,
    training_step,
)

KEY = 3


def hk_gpt(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")

    def forward(tokens: Any) -> Any:
        x = hk.Embed(64, 32)(tokens)
        mask = jnp.tril(jnp.ones((1, 1, x.shape[1], x.shape[1])))
        for _ in range(1):
            h = hk.LayerNorm(-1, True, True)(x)
            x = x + hk.MultiHeadAttention(4, 8, w_init=hk.initializers.RandomNormal())(
                h, h, h, mask
            )
            h = hk.Linear(128)(hk.LayerNorm(-1, True, True)(x))
            x = x + hk.Linear(32)(jax.nn.gelu(h))
        return hk.Linear(64)(x)

    model = hk.without_apply_rng(hk.transform(forward))
    tokens = integers(1, 64, 8, 13)
    parameters = filled(model.init, jax.random.PRNGKey(KEY), tokens[:, :-1])

    def loss(values: Any, tokens: Any) -> Any:
        return cross_entropy(model.apply(values, tokens[:, :-1]), tokens[:, 1:])

    batch = (put(mesh, tokens, "data", None),)
    return training_step(loss, parameters, batch, mesh, optax.novograd(1e-2))


def hk_resnet(devices: int) -> Program:
    mesh = mesh_of(devices, "data")
    images, labels = normal(1, 8, 32, 32, 3), integers(2, 10, 8)

    def forward(images: Any) -> Any:
        config = {"channels_per_group": (8, 8, 16, 16), "bottleneck": False}
        return hk.nets.ResNet((1, 1, 1, 1), 10, **config)(images, is_training=True)

    model = hk.without_apply_rng(hk.transform_with_state(forward))
    parameters, state = filled(model.init, jax.random.PRNGKey(KEY), images)

    @jax.jit
    def step(parameters: Any, state: Any, images: Any, labels: Any) -> Any:
        def loss(parameters: Any) -> Any:
            logits, new = model.apply(parameters, state, images)
            return cross_entropy(logits, labels), new

        (value, new), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), new, value

    arguments = (shard_tree(parameters, mesh, None), shard_tree(state, mesh, None))
    return Program(step, (*arguments, put(mesh, images, "data"), put(mesh, labels, "data")), mesh)


def hk_lstm(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")

    def forward(xs: Any) -> Any:
        core = hk.DeepRNN([hk.LSTM(16), jax.nn.relu, hk.GRU(16)])
        return hk.dynamic_unroll(core, xs, core.initial_state(xs.shape[1]))[0]

    model = hk.without_apply_rng(hk.transform(forward))
    xs = normal(1, 10, 8, 8)
    parameters = filled(model.init, jax.random.PRNGKey(KEY), xs)

    def loss(values: Any, xs: Any) -> Any:
        return jnp.mean(model.apply(values, xs) ** 2)

    return training_step(loss, parameters, (put(mesh, xs, None, "data"),), mesh, optax.sgd(0.1))


def hk_vector_quantizer(devices: int) -> Program:
    """Vector quantization with moving averages: nearest codes, one-hot sums, a straight-through gradient."""
    mesh = mesh_of(devices, "data")

    def forward(x: Any) -> Any:
        h = hk.Conv2D(8, 3)(x)
        coded = hk.nets.VectorQuantizerEMA(8, 16, 0.25, 0.9)(h, is_training=True)
        return hk.Conv2DTranspose(3, 3)(coded["quantize"]), coded["loss"], coded["encoding_indices"]

    model = hk.without_apply_rng(hk.transform_with_state(forward))
    x = normal(1, 8, 8, 8, 3)
    parameters, state = filled(model.init, jax.random.PRNGKey(KEY), x)

    @jax.jit
    def step(parameters: Any, state: Any, x: Any) -> Any:
        def loss(parameters: Any) -> Any:
            (out, extra, codes), new = model.apply(parameters, state, x)
            return jnp.mean((out - x) ** 2) + extra, (codes, new)

        return jax.value_and_grad(loss, has_aux=True)(parameters)

    arguments = (shard_tree(parameters, mesh, None), shard_tree(state, mesh, None))
    return Program(step, (*arguments, put(mesh, x, "data")), mesh)
