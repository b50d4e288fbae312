"""Models of Keras 3 on JAX, by `stateless_call`: dense with batch norm and dropout, convolutions, attention, LSTM."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np

from benchmarks.zoo.program import (
    Program,
    cross_entropy,
    integers,
    mesh_of,
    normal,
    put,
    shard_tree,
)


def keras_step(model: Any, x: np.ndarray, y: np.ndarray, devices: int) -> Program:
    """Step of gradient descent on the trainable variables; the other variables are carried along."""
    mesh = mesh_of(devices, "data", "model")
    rng = np.random.default_rng(0)
    trained = [
        np.asarray(0.3 * rng.standard_normal(v.shape) + (v.name == "gamma"), np.float32)
        for v in model.trainable_variables
    ]
    rest = [np.asarray(v.value) for v in model.non_trainable_variables]

    @jax.jit
    def step(trained: Any, rest: Any, x: Any, y: Any) -> Any:
        def loss(trained: Any) -> Any:
            logits, new = model.stateless_call(trained, rest, x, training=True)
            return cross_entropy(logits, y), new

        (value, new), gradients = jax.value_and_grad(loss, has_aux=True)(trained)
        return [p - 0.1 * g for p, g in zip(trained, gradients, strict=True)], new, value

    arguments = (shard_tree(trained, mesh, "model"), shard_tree(rest, mesh, None))
    return Program(step, (*arguments, put(mesh, x, "data"), put(mesh, y, "data")), mesh)


def keras_dense(devices: int) -> Program:
    model = keras.Sequential(
        [
            keras.layers.Dense(32, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3, seed=1),
            keras.layers.Dense(10),
        ]
    )
    model.build((16, 8))
    return keras_step(model, normal(1, 16, 8), integers(2, 10, 16), devices)


def keras_convolutions(devices: int) -> Program:
    model = keras.Sequential(
        [
            keras.layers.SeparableConv2D(8, 3, activation="gelu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.GroupNormalization(2),
            keras.layers.Conv2DTranspose(8, 3, strides=2),
            keras.layers.UpSampling2D(2, interpolation="bilinear"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.build((8, 12, 12, 3))
    return keras_step(model, normal(1, 8, 12, 12, 3), integers(2, 10, 8), devices)


def keras_attention(devices: int) -> Program:
    tokens = keras.Input((12,), dtype="int32")
    x = keras.layers.Embedding(32, 16)(tokens)
    x = x + keras.layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    x = keras.layers.LSTM(16, return_sequences=True)(keras.layers.LayerNormalization()(x))
    model = keras.Model(tokens, keras.layers.Dense(32)(x))
    return keras_step(model, integers(1, 32, 8, 12), integers(2, 32, 8, 12), devices)
