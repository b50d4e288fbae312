"""Models of flax.linen, trained by optax: a decoder, an encoder-decoder, vision, adapters, batch norm."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
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

KEY = 7


class Block(nn.Module):
    """Transformer block; attends to `memory` as well where there is one."""

    heads: int
    width: int

    @nn.compact
    def __call__(self, x: Any, mask: Any = None, memory: Any = None) -> Any:
        attend = nn.MultiHeadDotProductAttention
        h = nn.LayerNorm()(x)
        x = x + attend(num_heads=self.heads)(h, h, mask=mask)
        if memory is not None:
            x = x + attend(num_heads=self.heads)(nn.LayerNorm()(x), memory)
        h = nn.Dense(4 * self.width)(nn.LayerNorm()(x))
        return x + nn.Dense(self.width)(nn.gelu(h))


class Gpt(nn.Module):
    """Decoder-only language model with learned positions."""

    vocabulary: int = 64
    width: int = 32
    layers: int = 1

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        embed = nn.Embed(self.vocabulary, self.width)
        x = embed(tokens) + nn.Embed(tokens.shape[1], self.width)(jnp.arange(tokens.shape[1]))
        for _ in range(self.layers):
            x = Block(4, self.width)(x, nn.make_causal_mask(tokens))
        return embed.attend(nn.LayerNorm()(x))


class T5(nn.Module):
    """Encoder-decoder."""

    vocabulary: int = 48
    width: int = 32

    @nn.compact
    def __call__(self, source: Any, target: Any) -> Any:
        embed = nn.Embed(self.vocabulary, self.width)
        memory = Block(4, self.width)(embed(source), nn.make_attention_mask(source > 0, source > 0))
        x = Block(4, self.width)(embed(target), nn.make_causal_mask(target), nn.RMSNorm()(memory))
        return nn.Dense(self.vocabulary, use_bias=False)(nn.RMSNorm()(x))


class Vit(nn.Module):
    """Vision transformer over patches of 4 x 4."""

    width: int = 32

    @nn.compact
    def __call__(self, images: Any) -> Any:
        x = nn.Conv(self.width, (4, 4), (4, 4))(images)
        x = x.reshape(x.shape[0], -1, self.width)
        token = self.param("token", nn.initializers.normal(), (1, 1, self.width))
        x = jnp.concatenate([jnp.tile(token, (x.shape[0], 1, 1)), x], 1)
        x = x + self.param("position", nn.initializers.normal(), (1, x.shape[1], self.width))
        for _ in range(1):
            x = Block(4, self.width)(x)
        return nn.Dense(10)(x[:, 0])


class ResNet(nn.Module):
    """Two residual stages with batch normalization."""

    @nn.compact
    def __call__(self, x: Any, train: bool = True) -> Any:
        for width in (8, 16):
            strides = (width // 8, width // 8)
            h = nn.Conv(width, (3, 3), strides, use_bias=False)(x)
            h = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(h))
            h = nn.Conv(width, (3, 3), use_bias=False)(h)
            h = nn.BatchNorm(use_running_average=not train)(h)
            x = nn.relu(h + nn.Conv(width, (1, 1), strides)(x))
        return nn.Dense(10)(nn.avg_pool(x, (4, 4), (4, 4)).mean((1, 2)))


def linen_gpt_adamw(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")
    tokens = integers(1, 64, 8, 17)
    model = Gpt()
    parameters = filled(model.init, jax.random.key(KEY), tokens[:, :-1])

    def loss(values: Any, batch: Any) -> Any:
        return cross_entropy(model.apply(values, batch[:, :-1]), batch[:, 1:])

    batch = (put(mesh, tokens, "data", None),)
    return training_step(loss, parameters, batch, mesh, optax.adamw(1e-3))


def linen_t5(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")
    source, target = integers(1, 48, 8, 12), integers(2, 48, 8, 10)
    model = T5()
    parameters = filled(model.init, jax.random.key(KEY), source, target[:, :-1])

    def loss(values: Any, source: Any, target: Any) -> Any:
        return cross_entropy(model.apply(values, source, target[:, :-1]), target[:, 1:])

    batch = (put(mesh, source, "data", None), put(mesh, target, "data", None))
    return training_step(loss, parameters, batch, mesh, optax.adafactor(1e-2))


def linen_vit(devices: int) -> Program:
    mesh = mesh_of(devices, "data", "model")
    images, labels = normal(1, 8, 16, 16, 3), integers(2, 10, 8)
    model = Vit()
    parameters = filled(model.init, jax.random.key(KEY), images)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(1e-3))

    def loss(values: Any, images: Any, labels: Any) -> Any:
        return cross_entropy(model.apply(values, images), labels)

    batch = (put(mesh, images, "data"), put(mesh, labels, "data"))
    return training_step(loss, parameters, batch, mesh, optimizer)


def linen_lora(devices: int) -> Program:
    """Adapters of rank 4 on the frozen dense layers of a decoder."""
    mesh = mesh_of(devices, "data", "model")
    tokens = integers(1, 64, 8, 17)
    model = Gpt()
    frozen = filled(model.init, jax.random.key(KEY), tokens[:, :-1])
    flat, tree = jax.tree.flatten(frozen)
    adapters = {
        str(k): {"a": normal(k, w.shape[0], 4, scale=0.1), "b": normal(k + 1, 4, w.shape[1])}
        for k, w in enumerate(flat)
        if w.ndim == 2
    }

    def loss(adapters: Any, frozen: Any, batch: Any) -> Any:
        leaves = jax.tree.leaves(frozen)
        merged = [
            w + 0.1 * adapters[str(k)]["a"] @ adapters[str(k)]["b"] if str(k) in adapters else w
            for k, w in enumerate(leaves)
        ]
        logits = model.apply(jax.tree.unflatten(tree, merged), batch[:, :-1])
        return cross_entropy(logits, batch[:, 1:])

    batch = (shard_tree(frozen, mesh, "model"), put(mesh, tokens, "data", None))
    return training_step(loss, adapters, batch, mesh, optax.sgd(0.1, momentum=0.9))


def linen_resnet(devices: int) -> Program:
    mesh = mesh_of(devices, "data")
    images, labels = normal(1, 16, 16, 16, 3), integers(2, 10, 16)
    model = ResNet()
    variables = filled(model.init, jax.random.key(KEY), images)

    def loss(parameters: Any, statistics: Any, images: Any, labels: Any) -> Any:
        everything = {"params": parameters, "batch_stats": statistics}
        logits, state = model.apply(everything, images, mutable=["batch_stats"])
        return cross_entropy(logits, labels), state["batch_stats"]

    @jax.jit
    def step(parameters: Any, statistics: Any, images: Any, labels: Any) -> Any:
        (value, statistics), gradients = jax.value_and_grad(loss, has_aux=True)(
            parameters, statistics, images, labels
        )
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), statistics, value

    parameters = shard_tree(variables["params"], mesh, None)
    statistics = shard_tree(variables["batch_stats"], mesh, None)
    arguments = (parameters, statistics, put(mesh, images, "data"), put(mesh, labels, "data"))
    return Program(step, arguments, mesh)
