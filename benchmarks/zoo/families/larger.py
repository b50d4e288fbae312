"""Programs whose steps take XLA CPU tens of milliseconds: a ResNet-50, a decoder, a U-Net, an LSTM."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks.zoo.families.diffusion import UNet
from benchmarks.zoo.families.flax_linen import Gpt
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


def resnet_50(devices: int) -> Program:
    """A training step with batch normalization over the whole batch."""
    mesh = mesh_of(devices, "data")
    images, labels = normal(1, 8, 64, 64, 3), integers(2, 100, 8)

    def forward(images: Any) -> Any:
        return hk.nets.ResNet50(100)(images, is_training=True)

    model = hk.without_apply_rng(hk.transform_with_state(forward))
    parameters, state = filled(model.init, jax.random.PRNGKey(0), images)

    @jax.jit
    def step(parameters: Any, state: Any, images: Any, labels: Any) -> Any:
        def loss(parameters: Any) -> Any:
            logits, new = model.apply(parameters, state, images)
            return cross_entropy(logits, labels), new

        (value, new), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), new, value

    arguments = (shard_tree(parameters, mesh, None), shard_tree(state, mesh, None))
    return Program(step, (*arguments, put(mesh, images, "data"), put(mesh, labels, "data")), mesh)


def gpt_of_four_layers(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")
    tokens = integers(1, 512, 8, 129)
    model = Gpt(512, 256, 4)
    parameters = filled(model.init, jax.random.key(0), tokens[:, :-1])

    def loss(values: Any, batch: Any) -> Any:
        return cross_entropy(model.apply(values, batch[:, :-1]), batch[:, 1:])

    batch = (put(mesh, tokens, "data", None),)
    return training_step(loss, parameters, batch, mesh, optax.sgd(0.1, momentum=0.9))


def wide_unet(devices: int) -> Program:
    mesh = mesh_of(devices, "data")
    model, images = UNet(32), normal(1, 8, 32, 32, 3)
    noise, times = normal(2, 8, 32, 32, 3), jnp.linspace(0.1, 0.9, 8)
    parameters = filled(model.init, jax.random.key(0), images, times)

    def loss(values: Any, images: Any, noise: Any, times: Any) -> Any:
        level = jnp.cos(times * jnp.pi / 2)[:, None, None, None]
        noisy = level * images + jnp.sqrt(1 - level**2) * noise
        return jnp.mean((model.apply(values, noisy, times) - noise) ** 2)

    batch = tuple(put(mesh, x, "data") for x in (images, noise, times))
    return training_step(loss, parameters, batch, mesh, optax.sgd(0.1), axis=None)


def wide_lstm(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")

    def forward(xs: Any) -> Any:
        core = hk.DeepRNN([hk.LSTM(256), hk.LSTM(256)])
        return hk.dynamic_unroll(core, xs, core.initial_state(xs.shape[1]))[0]

    model = hk.without_apply_rng(hk.transform(forward))
    xs = normal(1, 64, 32, 128)
    parameters = filled(model.init, jax.random.PRNGKey(0), xs)

    def loss(values: Any, xs: Any) -> Any:
        return jnp.mean(model.apply(values, xs) ** 2)

    return training_step(loss, parameters, (put(mesh, xs, None, "data"),), mesh, optax.sgd(0.1))
