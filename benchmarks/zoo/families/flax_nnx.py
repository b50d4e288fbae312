"""Models of flax.nnx: a decoder, a mixture of experts, recurrent layers, batch norm with dropout."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import optax
from flax import nnx

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


def split_model(make: Any) -> tuple[Any, Any]:
    """Graph definition and filled parameters of the module that `make()` returns."""
    graph, state = nnx.split(nnx.eval_shape(make))
    return graph, filled(lambda: nnx.to_pure_dict(state))


class NnxBlock(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.norm, self.norm2 = nnx.RMSNorm(width, rngs=rngs), nnx.RMSNorm(width, rngs=rngs)
        self.attend = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.gate = nnx.Linear(width, 2 * width, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, x: Any, mask: Any) -> Any:
        x = x + self.attend(self.norm(x), mask=mask)
        h = self.norm2(x)
        return x + self.down(nnx.silu(self.gate(h)) * self.up(h))


class NnxGpt(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(64, 32, rngs=rngs)
        self.blocks = nnx.List([NnxBlock(32, rngs) for _ in range(1)])
        self.norm = nnx.RMSNorm(32, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x, mask = self.embed(tokens), nnx.make_causal_mask(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.embed.attend(self.norm(x))


class NnxRecurrent(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.lstm = nnx.RNN(nnx.OptimizedLSTMCell(8, 16, rngs=rngs))
        self.gru = nnx.RNN(nnx.GRUCell(16, 16, rngs=rngs))
        self.head = nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(self.gru(self.lstm(x)))


class NnxConvolutions(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.depth = nnx.Conv(8, 8, (3, 3), feature_group_count=8, rngs=rngs)
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.transposed = nnx.ConvTranspose(8, 3, (2, 2), (2, 2), rngs=rngs)

    def __call__(self, x: Any) -> Any:
        h = nnx.max_pool(nnx.gelu(self.conv(x)), (2, 2), (2, 2))
        return self.transposed(h + self.depth(self.norm(h)))


def nnx_gpt_muon(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")
    graph, parameters = split_model(lambda: NnxGpt(nnx.Rngs(0)))

    def loss(values: Any, tokens: Any) -> Any:
        model = nnx.merge(graph, values)
        return cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])

    tokens = put(mesh, integers(1, 64, 8, 17), "data", None)
    return training_step(loss, parameters, (tokens,), mesh, optax.contrib.muon(1e-2))


def nnx_recurrent(devices: int) -> Program:
    mesh = mesh_of(devices, "data")

    def parameters_of() -> Any:
        return nnx.to_pure_dict(nnx.state(NnxRecurrent(nnx.Rngs(0)), nnx.Param))

    def loss(values: Any, xs: Any) -> Any:
        model = NnxRecurrent(nnx.Rngs(0))
        nnx.update(model, values)
        return jnp.mean(model(xs) ** 2)

    xs = put(mesh, normal(1, 8, 12, 8), "data")
    return training_step(loss, filled(parameters_of), (xs,), mesh, optax.adagrad(0.1), axis=None)


def nnx_autoencoder(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "space")
    graph, parameters = split_model(lambda: NnxConvolutions(nnx.Rngs(0)))

    def loss(values: Any, images: Any) -> Any:
        return jnp.mean((nnx.merge(graph, values)(images) - images) ** 2)

    images = put(mesh, normal(1, 4, 16, 16, 3), "data", "space")
    return training_step(loss, parameters, (images,), mesh, optax.sgd(0.1), axis=None)
