"""Computations of science and vision: sampling chains, clustering, options, automata, images, contrastive pairs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.scipy.ndimage import map_coordinates

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


def hamiltonian_chains(devices: int) -> Program:
    """Leapfrog steps with acceptance, many chains divided."""
    mesh = mesh_of(devices, "chain")

    def energy(x: Any) -> Any:
        return 0.5 * jnp.sum(x**2) + jnp.sum(jnp.sin(2 * x))

    def chain(x: Any, key: Any) -> Any:
        def sample(x: Any, key: Any) -> Any:
            one, two = jax.random.split(key)
            p = start = jax.random.normal(one, x.shape)
            y = x

            def leap(_: Any, state: Any) -> Any:
                y, p = state
                p = p - 0.05 * jax.grad(energy)(y)
                y = y + 0.1 * p
                return y, p - 0.05 * jax.grad(energy)(y)

            y, p = lax.fori_loop(0, 5, leap, (y, p))
            change = energy(x) + 0.5 * start @ start - energy(y) - 0.5 * p @ p
            return jnp.where(jnp.log(jax.random.uniform(two)) < change, y, x), change

        return lax.scan(sample, x, jax.random.split(jax.random.wrap_key_data(key), 6))

    keys = integers(2, 1 << 30, 16, 2).astype("uint32")
    return Program(
        jax.jit(jax.vmap(chain)),
        (put(mesh, normal(1, 16, 5), "chain"), put(mesh, keys, "chain")),
        mesh,
    )


def ising_model(devices: int) -> Program:
    """Checkerboard updates of spins, with rolls over divided rows."""
    mesh = mesh_of(devices, "x")

    @jax.jit
    def run(spins: Any) -> Any:
        color = (jnp.indices(spins.shape).sum(0) % 2).astype(bool)

        def sweep(spins: Any, key: Any) -> Any:
            for half in (color, ~color):
                around = sum(jnp.roll(spins, s, d) for s in (1, -1) for d in (0, 1))
                draw = jax.random.uniform(key, spins.shape)
                flip = half & (draw < jnp.exp(-0.8 * spins * around))
                spins = jnp.where(flip, -spins, spins)
            return spins, spins.sum()

        return lax.scan(sweep, spins, jax.random.split(jax.random.key(0), 4))

    return Program(run, (put(mesh, 2 * integers(1, 2, 16, 16) - 1, "x"),), mesh)


def k_means(devices: int) -> Program:
    mesh = mesh_of(devices, "points")

    @jax.jit
    def run(x: Any, centers: Any) -> Any:
        def step(_: Any, centers: Any) -> Any:
            nearest = ((x[:, None] - centers) ** 2).sum(-1).argmin(1)
            total = jax.ops.segment_sum(x, nearest, 5)
            count = jax.ops.segment_sum(jnp.ones(len(x)), nearest, 5)
            return jnp.where(count[:, None] > 0, total / jnp.maximum(count, 1)[:, None], centers)

        return lax.fori_loop(0, 6, step, centers)

    return Program(run, (put(mesh, normal(1, 64, 3), "points"), normal(2, 5, 3)), mesh)


def option_prices(devices: int) -> Program:
    """Paths of geometric Brownian motion, barriers by running minima, a quantile, and sensitivities."""
    mesh = mesh_of(devices, "path")

    def price(volatility: Any, noise: Any) -> Any:
        steps = -0.5 * volatility**2 / 12 + volatility * jnp.sqrt(1 / 12) * noise
        paths = jnp.exp(jnp.cumsum(steps, 1))
        alive = lax.cummin(paths, axis=1)[:, -1] > 0.8
        payoff = jnp.maximum(paths[:, -1] - 1, 0) * alive
        return payoff.mean(), jnp.quantile(paths[:, -1], jnp.array([0.05, 0.5, 0.95]))

    run = jax.jit(jax.value_and_grad(price, has_aux=True))
    return Program(run, (jnp.float32(0.2), put(mesh, normal(1, 128, 12), "path")), mesh)


def cellular_automata(devices: int) -> Program:
    """The game of life by integer convolution, rule 110 by shifts of bits."""
    mesh = mesh_of(devices, "x")

    @jax.jit
    def run(cells: Any, words: Any) -> Any:
        def live(c: Any, _: Any) -> Any:
            total = sum(jnp.roll(c, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - c
            return ((total == 3) | ((c == 1) & (total == 2))).astype(jnp.uint8), total.max()

        def rule(w: Any, _: Any) -> Any:
            left, right = (w >> 1) | (w << 31), (w << 1) | (w >> 31)
            return (w | right) & ~(left & w & right), lax.population_count(w).sum()

        return lax.scan(live, cells, None, length=4), lax.scan(rule, words, None, length=4)

    cells = integers(1, 2, 16, 16).astype("uint8")
    words = integers(2, 1 << 30, 32).astype("uint32")
    return Program(run, (put(mesh, cells, "x"), put(mesh, words, "x")), mesh)


def mandelbrot(devices: int) -> Program:
    """Complex iteration until all points have escaped or the limit is met."""
    mesh = mesh_of(devices, "x", "y")

    @jax.jit
    def run(x: Any, y: Any) -> Any:
        c = x[:, None] + 1j * y[None]

        def step(state: Any) -> Any:
            z, count, k = state
            inside = jnp.abs(z) < 2
            return jnp.where(inside, z * z + c, z), count + inside, k + 1

        start = (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32), 0)
        going = lambda s: (s[2] < 20) & jnp.any(jnp.abs(s[0]) < 2)  # noqa: E731
        return lax.while_loop(going, step, start)[1]

    return Program(
        run, (put(mesh, uniform(1, 16, low=-2), "x"), put(mesh, uniform(2, 16, low=-1), "y")), mesh
    )


def image_warps(devices: int) -> Program:
    """Bilinear samples at moved coordinates, resizes, histograms by sorted search, median by sorting windows."""
    mesh = mesh_of(devices, "image")

    @jax.jit
    def run(images: Any, flow: Any) -> Any:
        grid = jnp.stack(jnp.meshgrid(jnp.arange(12.0), jnp.arange(12.0), indexing="ij"))
        warp = lambda i, f: map_coordinates(i, list(grid + f), order=1, mode="nearest")  # noqa: E731
        warped = jax.vmap(warp)(images, flow)
        small = jax.image.resize(warped, (len(images), 5, 7), "cubic")
        bins = jnp.searchsorted(jnp.linspace(-2, 2, 9), images.reshape(len(images), -1))
        patches = lax.conv_general_dilated_patches(images[:, None], (3, 3), (1, 1), "SAME")
        return (
            warped,
            small,
            jax.vmap(lambda b: jnp.bincount(b, length=10))(bins),
            jnp.median(patches, 1),
        )

    return Program(
        run,
        (put(mesh, normal(1, 8, 12, 12), "image"), put(mesh, normal(2, 8, 2, 12, 12), "image")),
        mesh,
    )


def contrastive_pairs(devices: int) -> Program:
    """Two encoders and all pairs of a divided batch; a queue of negatives and a moving-average teacher."""
    mesh = mesh_of(devices, "data", "model")

    def loss(w: Any, a: Any, b: Any, queue: Any) -> Any:
        unit = lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
        za, zb = unit(jnp.tanh(a @ w["a"])), unit(jnp.tanh(b @ w["b"]))
        logits = jnp.concatenate([za @ zb.T, za @ queue.T], 1) * jnp.exp(w["scale"])
        labels = jnp.arange(len(a))
        both = optax.softmax_cross_entropy_with_integer_labels
        return both(logits, labels).mean() + both(logits[:, : len(a)].T, labels).mean()

    weights = {"a": scaled(1, 16, 16), "b": scaled(2, 12, 16), "scale": jnp.float32(1.0)}
    batch = (
        put(mesh, normal(3, 16, 16), "data"),
        put(mesh, normal(4, 16, 12), "data"),
        put(mesh, normal(5, 8, 16)),
    )
    return training_step(loss, weights, batch, mesh, optax.adamw(1e-3))
