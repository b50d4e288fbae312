"""Models of equinox: a decoder, a convolutional network, an ensemble by vmap, a neural differential equation."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.zoo.program import (
    Program,
    cross_entropy,
    filled,
    integers,
    mesh_of,
    normal,
    put,
    training_step,
)


class EqxBlock(eqx.Module):
    attend: eqx.nn.MultiheadAttention
    norms: list[eqx.nn.LayerNorm]
    mlp: eqx.nn.MLP

    def __init__(self, width: int, key: Any) -> None:
        one, two = jax.random.split(key)
        self.attend = eqx.nn.MultiheadAttention(4, width, key=one)
        self.norms = [eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)]
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=two)

    def __call__(self, x: Any) -> Any:
        h = jax.vmap(self.norms[0])(x)
        x = x + self.attend(h, h, h, mask=jnp.tril(jnp.ones((len(x), len(x)), bool)))
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class EqxGpt(eqx.Module):
    embed: eqx.nn.Embedding
    rotary: eqx.nn.RotaryPositionalEmbedding
    blocks: list[EqxBlock]
    head: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 4)
        self.embed = eqx.nn.Embedding(64, 32, key=keys[0])
        self.rotary = eqx.nn.RotaryPositionalEmbedding(8)
        self.blocks = [EqxBlock(32, k) for k in keys[1:2]]
        self.head = eqx.nn.Linear(32, 64, key=keys[3])

    def __call__(self, tokens: Any) -> Any:
        x = jax.vmap(self.embed)(tokens)
        x = jax.vmap(self.rotary, 1, 1)(x.reshape(len(x), 4, 8)).reshape(x.shape)
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(x)


def split_model(make: Any) -> tuple[Any, Any]:
    """Filled arrays of the model that `make()` returns, and its static part."""
    shapes = eqx.filter_eval_shape(make)
    dynamic, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    return filled(lambda: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), dynamic)), static


def eqx_gpt(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")
    parameters, static = split_model(lambda: EqxGpt(jax.random.key(0)))

    def loss(values: Any, tokens: Any) -> Any:
        logits = jax.vmap(eqx.combine(values, static))(tokens[:, :-1])
        return cross_entropy(logits, tokens[:, 1:])

    tokens = put(mesh, integers(1, 64, 8, 13), "data", None)
    return training_step(loss, parameters, (tokens,), mesh, optax.adamw(1e-3))


def eqx_convolutions(devices: int) -> Program:
    mesh = mesh_of(devices, "data")

    def make() -> Any:
        keys = jax.random.split(jax.random.key(0), 3)
        return eqx.nn.Sequential(
            [
                eqx.nn.Conv2d(3, 8, 3, key=keys[0]),
                eqx.nn.GroupNorm(2, 8),
                eqx.nn.MaxPool2d(2, 2),
                eqx.nn.Lambda(jax.nn.relu),
                eqx.nn.Conv2d(8, 8, 3, dilation=2, key=keys[1]),
                eqx.nn.AdaptiveAvgPool2d(1),
                eqx.nn.Lambda(jnp.ravel),
                eqx.nn.Linear(8, 10, key=keys[2]),
            ]
        )

    parameters, static = split_model(make)

    def loss(values: Any, images: Any, labels: Any) -> Any:
        return cross_entropy(jax.vmap(eqx.combine(values, static))(images), labels)

    batch = (put(mesh, normal(1, 8, 3, 16, 16), "data"), put(mesh, integers(2, 10, 8), "data"))
    return training_step(loss, parameters, batch, mesh, optax.yogi(1e-2), axis=None)


def eqx_ensemble(devices: int) -> Program:
    """Eight networks trained at once by vmap over divided members."""
    mesh = mesh_of(devices, "member")
    keys = jax.random.split(jax.random.key(0), 8)

    def make() -> Any:
        return eqx.filter_vmap(lambda k: eqx.nn.MLP(4, 2, 16, 2, key=k))(keys)

    parameters, static = split_model(make)

    @jax.jit
    def step(values: Any, x: Any, y: Any) -> Any:
        def loss(values: Any) -> Any:
            prediction = jax.vmap(eqx.combine(values, static))(x)
            return jnp.mean((prediction - y) ** 2)

        losses, gradients = jax.vmap(jax.value_and_grad(loss))(values)
        return jax.tree.map(lambda p, g: p - 0.1 * g, values, gradients), losses

    values = jax.tree.map(lambda x: put(mesh, x, "member"), parameters)
    return Program(step, (values, normal(1, 32, 4), normal(2, 32, 2)), mesh)


def eqx_neural_ode(devices: int) -> Program:
    """Runge-Kutta steps of a network with checkpoints, and the gradient through them."""
    mesh = mesh_of(devices, "data")
    parameters, static = split_model(
        lambda: eqx.nn.MLP(3, 3, 16, 1, jnp.tanh, key=jax.random.key(0))
    )

    def loss(values: Any, start: Any, end: Any) -> Any:
        field = jax.vmap(eqx.combine(values, static))

        @jax.checkpoint
        def step(y: Any, _: Any) -> Any:
            k1 = field(y)
            k2 = field(y + 0.05 * k1)
            k3 = field(y + 0.05 * k2)
            k4 = field(y + 0.1 * k3)
            return y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return jnp.mean((lax.scan(step, start, None, length=10)[0] - end) ** 2)

    batch = (put(mesh, normal(1, 16, 3), "data"), put(mesh, normal(2, 16, 3), "data"))
    return training_step(loss, parameters, batch, mesh, optax.adam(1e-2), axis=None)
