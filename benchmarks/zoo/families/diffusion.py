"""Diffusion: a U-Net with group norm and attention, its training step, and sampling in a loop."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.zoo.program import (
    Program,
    filled,
    mesh_of,
    normal,
    put,
    shard_tree,
    training_step,
)


class Residual(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: Any, time: Any) -> Any:
        h = nn.Conv(self.width, (3, 3))(nn.silu(nn.GroupNorm(4)(x)))
        h = h + nn.Dense(self.width)(time)[:, None, None]
        h = nn.Conv(self.width, (3, 3))(nn.silu(nn.GroupNorm(4)(h)))
        return h + nn.Conv(self.width, (1, 1))(x)


class UNet(nn.Module):
    width: int = 8

    @nn.compact
    def __call__(self, x: Any, t: Any) -> Any:
        angles = t[:, None] * jnp.exp(-jnp.arange(4.0))
        time = nn.silu(nn.Dense(16)(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)))
        top = Residual(self.width)(nn.Conv(self.width, (3, 3))(x), time)
        low = Residual(self.width)(nn.avg_pool(top, (2, 2), (2, 2)), time)
        flat = low.reshape(low.shape[0], -1, self.width)
        low = low + nn.MultiHeadDotProductAttention(2)(flat).reshape(low.shape)
        up = jax.image.resize(low, top.shape, "nearest")
        return nn.Conv(3, (3, 3))(Residual(self.width)(jnp.concatenate([up, top], -1), time))


def unet_training(devices: int) -> Program:
    mesh = mesh_of(devices, "data")
    model, images = UNet(), normal(1, 8, 8, 8, 3)
    parameters = filled(model.init, jax.random.key(0), images, jnp.ones(8))

    def loss(values: Any, images: Any, key: Any) -> Any:
        one, two = jax.random.split(jax.random.wrap_key_data(key))
        t = jax.random.uniform(one, (8,))
        noise = jax.random.normal(two, images.shape)
        level = jnp.cos(t * jnp.pi / 2)[:, None, None, None]
        noisy = level * images + jnp.sqrt(1 - level**2) * noise
        return jnp.mean((model.apply(values, noisy, t) - noise) ** 2)

    batch = (put(mesh, images, "data"), put(mesh, jax.random.key_data(jax.random.key(3))))
    return training_step(loss, parameters, batch, mesh, optax.adam(1e-3), axis=None)


def unet_sampling(devices: int) -> Program:
    """Four denoising steps in a loop, noise from a folded key in each."""
    mesh = mesh_of(devices, "data", "space")
    model, images = UNet(), normal(1, 4, 8, 8, 3)
    parameters = filled(model.init, jax.random.key(0), images, jnp.ones(4))

    @jax.jit
    def run(values: Any, x: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(1), k)
            predicted = model.apply(values, x, jnp.full(4, 1 - k / 4))
            return x - 0.2 * predicted + 0.05 * jax.random.normal(key, x.shape)

        return lax.fori_loop(0, 4, step, x)

    placed = shard_tree(parameters, mesh, None)
    return Program(run, (placed, put(mesh, images, "data", "space")), mesh)
