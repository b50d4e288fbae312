"""TensorFlow: functions on one device, with what Keras and tf.GradientTape make of them. Needs TensorFlow, not JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers


@dataclass(frozen=True)
class Program:
    """A function of arrays, which may read variables, and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def with_gradients(loss: Callable[..., Any], watched: Sequence[int]) -> Callable[..., Any]:
    """A function that returns the loss and its gradients by some of its arguments."""

    def function(*arguments: Any) -> Any:
        chosen = [arguments[i] for i in watched]
        with tf.GradientTape() as tape:
            tape.watch(chosen)
            value = loss(*arguments)
        return [value, *tape.gradient(value, chosen)]

    return function


def tf_dense_training() -> Program:
    def loss(x: Any, w: Any, b: Any, v: Any, labels: Any) -> Any:
        logits = tf.nn.gelu(x @ w + b) @ v
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_mean(each)

    labels = np.arange(8, dtype=np.int32)
    arguments = (normal(1, 8, 16), normal(2, 16, 32, scale=0.2), normal(3, 32))
    return Program(
        with_gradients(loss, (1, 2, 3)), (*arguments, normal(4, 32, 10, scale=0.2), labels)
    )


def tf_conv_batch_norm() -> Program:
    def loss(x: Any, kernel: Any, scale: Any, offset: Any, depthwise: Any) -> Any:
        h = tf.nn.conv2d(x, kernel, 2, "SAME")
        h = tf.compat.v1.nn.fused_batch_norm(h, scale, offset)[0]
        h = tf.nn.max_pool2d(tf.nn.relu(h), 2, 2, "VALID")
        return tf.reduce_sum(tf.nn.depthwise_conv2d(h, depthwise, [1, 1, 1, 1], "SAME") ** 2)

    arguments = (normal(1, 4, 16, 16, 3), normal(2, 3, 3, 3, 8, scale=0.3), normal(3, 8))
    return Program(
        with_gradients(loss, (1, 2, 3, 4)), (*arguments, normal(4, 8), normal(5, 3, 3, 8, 1))
    )


def tf_lstm_scan() -> Program:
    def loss(xs: Any, w: Any, u: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = tf.split(x @ w + h @ u, 4, -1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            return tf.sigmoid(o) * tf.tanh(c), c

        return tf.reduce_sum(tf.scan(cell, xs, (tf.zeros([4, 8]), tf.zeros([4, 8])))[0][-1])

    weights = (normal(2, 8, 32, scale=0.3), normal(3, 8, 32, scale=0.3))
    return Program(with_gradients(loss, (1, 2)), (normal(1, 6, 4, 8), *weights))


def tf_segments() -> Program:
    def function(x: Any, i: Any) -> Any:
        sums = tf.math.unsorted_segment_sum(x, i, 5)
        return sums, tf.math.unsorted_segment_max(x, i, 5), tf.gather(x, i), tf.one_hot(i, 5)

    return Program(function, (normal(1, 10, 6), np.array([0, 0, 1, 2, 2, 2, 3, 4, 4, 4], np.int32)))


def tf_top_k_and_sorts() -> Program:
    def function(x: Any) -> Any:
        sums = tf.cumsum(x, 1, exclusive=True, reverse=True)
        return *tf.math.top_k(x, 5), tf.sort(x), tf.argsort(x), tf.argmax(x, -1), sums

    return Program(function, (normal(1, 4, 50),))


def tf_linear_algebra() -> Program:
    def function(a: Any) -> Any:
        s = a @ tf.transpose(a) + 6 * tf.eye(6)
        factor = tf.linalg.cholesky(s)
        solved = tf.linalg.triangular_solve(factor, a), tf.linalg.solve(s, a)
        return factor, *solved, tf.linalg.inv(s), tf.linalg.eigh(s)[0], tf.linalg.qr(a)[1]

    return Program(function, (normal(1, 6, 6),))


def tf_fourier() -> Program:
    def function(x: Any) -> Any:
        found = tf.signal.rfft(x)
        whole = tf.signal.fft(tf.cast(x, tf.complex64))
        return tf.abs(found), tf.signal.irfft(found), tf.math.real(whole)

    return Program(function, (normal(1, 4, 32),))


def tf_images() -> Program:
    def function(x: Any) -> Any:
        small = tf.image.resize(x, [5, 5], method="nearest")
        pooled = tf.nn.avg_pool2d(x, 3, 1, "SAME")
        return tf.image.resize(x, [16, 12]), small, pooled, tf.image.rgb_to_hsv(tf.sigmoid(x))

    return Program(function, (normal(1, 2, 8, 8, 3),))


def tf_random_numbers() -> Program:
    def function(seed: Any) -> Any:
        whole = tf.random.stateless_uniform([7], seed, maxval=100, dtype=tf.int32)
        return (
            tf.random.stateless_normal([5, 5], seed),
            whole,
            tf.random.stateless_truncated_normal([8], seed),
        )

    return Program(function, (np.array([3, 7], np.int32),))


def tf_collatz() -> Program:
    """A loop with a conditional in it, whose number of trips depends on the data."""

    def step(n: Any, k: Any) -> Any:
        half = tf.cond(tf.math.floormod(n, 2.0) < 0.5, lambda: n / 2, lambda: 3 * n + 1)
        return half, k + 1

    def function(n: Any) -> Any:
        return tf.while_loop(lambda n, _: n > 1.5, step, (n, tf.constant(0)))

    return Program(function, (np.asarray(27, np.float32),))


def tf_bfloat16() -> Program:
    def function(x: Any, w: Any) -> Any:
        y = tf.cast(x, tf.bfloat16) @ tf.cast(w, tf.bfloat16)
        return y, tf.nn.log_softmax(y)

    return Program(function, (normal(1, 8, 16), normal(2, 16, 16, scale=0.3)))


def tf_indexing() -> Program:
    def function(x: Any, i: Any) -> Any:
        return (
            x[1:4, ::-2],
            tf.tensor_scatter_nd_update(x, i[:, None], tf.zeros([3, 7])),
            tf.gather_nd(x, tf.stack([i, i], -1)),
            tf.roll(x, 2, 1),
            tf.pad(x, [[1, 2], [0, 1]], "REFLECT"),
            tf.reverse_sequence(x, tf.constant([1, 2, 3, 4, 5]), 1),
        )

    return Program(function, (normal(1, 5, 7), np.array([2, 0, 3], np.int32)))


def of_model(model: Any, x: np.ndarray) -> Program:
    """Loss and gradients of a Keras model, whose weights are drawn from a seed."""
    keras.utils.set_random_seed(1)
    model(x)
    values = [variable.value for variable in model.trainable_variables]

    def function(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = tf.reduce_mean(model(x, training=False) ** 2)
        return [loss, *tape.gradient(loss, values)]

    return Program(function, (x,))


def tf_keras_convolutions() -> Program:
    parts = [layers.Conv2D(8, 3), layers.BatchNormalization(), layers.ReLU()]
    parts += [layers.GlobalAveragePooling2D(), layers.Dense(5)]
    return of_model(keras.Sequential(parts), normal(1, 2, 8, 8, 3))


def tf_keras_recurrent() -> Program:
    both = layers.Bidirectional(layers.LSTM(8, return_sequences=True))
    return of_model(keras.Sequential([both, layers.GRU(6), layers.Dense(3)]), normal(1, 2, 7, 5))


def tf_keras_transformer() -> Program:
    x = keras.Input((10, 16))
    h = layers.LayerNormalization()(layers.MultiHeadAttention(2, 8)(x, x) + x)
    return of_model(keras.Model(x, layers.Dense(16, activation="gelu")(h)), normal(1, 2, 10, 16))
