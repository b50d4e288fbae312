"""Quantized arithmetic: int8 products, fp8 casts, four-bit weights, straight-through gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
from jax import lax

from benchmarks.zoo.program import Program, integers, mesh_of, normal, put, scaled, training_step


def int8_product(devices: int) -> Program:
    """Dynamic quantization of activations by row and of weights by column, an s32 product, scales after."""
    mesh = mesh_of(devices, "data", "model")

    def quantize(x: Any, axis: int) -> Any:
        scale = jnp.max(jnp.abs(x), axis, keepdims=True) / 127
        return jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8), scale

    @jax.jit
    def run(x: Any, w: Any) -> Any:
        (xq, xs), (wq, ws) = quantize(x, 1), quantize(w, 0)
        product = lax.dot(xq, wq, preferred_element_type=jnp.int32)
        return product.astype(jnp.float32) * xs * ws, product

    return Program(
        run,
        (put(mesh, normal(1, 16, 32), "data"), put(mesh, normal(2, 32, 24), None, "model")),
        mesh,
    )


def fp8_training(devices: int) -> Program:
    """Products of e4m3 operands with e5m2 gradients and delayed scales, by custom_vjp."""
    mesh = mesh_of(devices, "data", "model")

    def cast(x: Any, dtype: Any) -> Any:
        return jnp.clip(x, -400, 400).astype(dtype).astype(jnp.bfloat16)

    @jax.custom_vjp
    def product(x: Any, w: Any) -> Any:
        return cast(x, jnp.float8_e4m3fn) @ cast(w, jnp.float8_e4m3fn)

    def forward(x: Any, w: Any) -> Any:
        return product(x, w), (x, w)

    def backward(kept: Any, g: Any) -> Any:
        x, w = kept
        g = cast(g * 64, jnp.float8_e5m2) / 64
        x8, w8 = cast(x, jnp.float8_e4m3fn), cast(w, jnp.float8_e4m3fn)
        return (g @ w8.T).astype(x.dtype), (x8.T @ g).astype(w.dtype)

    product.defvjp(forward, backward)

    def loss(w: Any, x: Any) -> Any:
        h = jax.nn.relu(product(x, w["up"]).astype(jnp.float32))
        return jnp.mean(product(h, w["down"]).astype(jnp.float32) ** 2)

    weights = {"up": scaled(1, 16, 32), "down": scaled(2, 32, 16)}
    return training_step(
        loss, weights, (put(mesh, normal(3, 16, 16), "data"),), mesh, optax.sgd(0.1)
    )


def four_bit_weights(devices: int) -> Program:
    """Weights unpacked from bytes by shifts, groups with scales and zero points."""
    mesh = mesh_of(devices, "model")

    @jax.jit
    def run(x: Any, packed: Any, scales: Any) -> Any:
        low, high = packed & 15, packed >> 4
        w = jnp.stack([low, high], 1).reshape(32, -1).astype(jnp.float32) - 8
        w = (w.reshape(4, 8, -1) * scales[:, None]).reshape(32, -1)
        s4 = (w[:, :8] / 8).astype(jnp.int4).astype(jnp.float32)
        return x @ w, x @ s4

    packed = np.asarray(integers(2, 256, 16, 24), np.uint8)
    arguments = (
        normal(1, 8, 32),
        put(mesh, packed, None, "model"),
        put(mesh, normal(3, 4, 24), None, "model"),
    )
    return Program(run, arguments, mesh)


def straight_through(devices: int) -> Program:
    """Quantization-aware training: rounding forwards, the identity backwards; moving ranges."""
    mesh = mesh_of(devices, "data")

    def fake(x: Any, scale: Any) -> Any:
        return x + lax.stop_gradient(jnp.round(x / scale).clip(-8, 7) * scale - x)

    def loss(w: Any, x: Any) -> Any:
        h = jax.nn.relu(fake(x, 0.5) @ fake(w["a"], jnp.abs(w["a"]).max() / 7))
        return jnp.mean((h @ fake(w["b"], w["scale"])) ** 2)

    weights = {"a": scaled(1, 16, 16), "b": scaled(2, 16, 4), "scale": np.float32(0.1)}
    return training_step(
        loss, weights, (put(mesh, normal(3, 32, 16), "data"),), mesh, optax.sgd(0.01), axis=None
    )


def microscaled_blocks(devices: int) -> Program:
    """Blocks of 8 with a shared power-of-two scale, by frexp and ldexp, of f4 and f6 elements."""
    mesh = mesh_of(devices, "x")

    @jax.jit
    def run(x: Any) -> Any:
        blocks = x.reshape(x.shape[0], -1, 8)
        _, exponent = jnp.frexp(jnp.abs(blocks).max(-1))
        small = jnp.ldexp(blocks, 2 - exponent[..., None])
        back = small.astype(ml_dtypes.float4_e2m1fn).astype(jnp.float32)
        return jnp.ldexp(back, exponent[..., None] - 2).reshape(x.shape), exponent

    return Program(run, (put(mesh, normal(1, 16, 32), "x"),), mesh)
