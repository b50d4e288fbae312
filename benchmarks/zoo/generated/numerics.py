"""Operations of random programs that combine elements: reductions, products, windows, factors, random numbers."""

from __future__ import annotations

from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.zoo.generated.dice import (
    axis_of,
    coarse,
    constant,
    is_complex,
    is_float,
    is_ordered,
    pick,
    pick_float,
    pick_single,
)


def reduction(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: x.ndim and is_ordered(x))
    if x is None:
        return None
    axes = tuple(sorted(dice.sample(range(x.ndim), dice.randint(1, x.ndim))))
    keep = dice.random() < 0.5
    single = x.astype(jnp.float32)
    functions = (
        lambda: jnp.sum(x, axes, keepdims=keep), lambda: jnp.max(x, axes, keepdims=keep),
        lambda: jnp.min(x, axes, keepdims=keep), lambda: jnp.mean(x, axes, keepdims=keep),
        lambda: jnp.argmax(coarse(x), axes[0], keepdims=keep), lambda: jnp.any(x > 0.537, axes, keepdims=keep),
        lambda: jnp.var(single, axes, keepdims=keep), lambda: jax.nn.logsumexp(single, axes, keepdims=keep),
        lambda: jnp.sqrt(1 + jnp.sum(jnp.square(single), axes, keepdims=keep)),
        lambda: jnp.prod(jnp.tanh(single) + 0.5, axes, keepdims=keep), lambda: jax.nn.softmax(single, axes[0]),
        lambda: jax.nn.standardize(single, axes, epsilon=0.1), lambda: jnp.ptp(x, axes[0]),
        lambda: lax.reduce(x, jnp.zeros((), x.dtype), lambda a, b: lax.max(a, jnp.abs(b)), axes),
    )  # fmt: skip
    return dice.choice(functions)()


def product(dice: Random, pool: list[Any]) -> Any:
    x = pick_float(dice, pool, 1)
    if x is None:
        return None
    kind = dice.randrange(7)
    if kind == 0:
        return jnp.tanh(x @ constant(dice, x.shape[-1], dice.choice((3, 8, 16))).astype(x.dtype))
    y = pick(dice, pool, lambda y: is_float(y) and y.ndim >= 1 and y.shape[-1] == x.shape[-1])
    if kind == 1 and y is not None:
        return jnp.tanh(jnp.tensordot(x, y.astype(x.dtype), (-1, -1)))
    if kind == 2 and x.ndim >= 2:
        return jnp.tanh(jnp.einsum("...ij,...kj->...ik", x, x))
    if kind == 3:
        axis = axis_of(dice, x)
        w = constant(dice, x.shape[axis], 5).astype(x.dtype)
        return jnp.tanh(jnp.moveaxis(jnp.tensordot(x, w, (axis, 0)), -1, axis))
    if kind == 4:
        whole = (
            jnp.round(4 * jnp.tanh(x.astype(jnp.float32))).astype(jnp.int8).reshape(-1, x.shape[-1])
        )
        return jnp.matmul(whole, whole.T, preferred_element_type=jnp.int32)
    if kind == 5:
        return contraction(dice, x)
    flat = x.reshape(-1, x.shape[-1])
    return jnp.tanh(flat.T @ flat)


def contraction(dice: Random, x: Any) -> Any:
    """An einsum of `x` with a constant: each dimension is a batch dimension, contracted, or free."""
    letters = "abcde"[: x.ndim]
    kinds = [dice.choice("bcf") for _ in letters]
    other = "".join(d for d, kind in zip(letters, kinds, strict=True) if kind != "f") + "z"
    sizes = {**dict(zip(letters, x.shape, strict=True)), "z": 4}
    w = constant(dice, *(sizes[d] for d in other)).astype(x.dtype)
    result = [d for d, kind in zip(letters, kinds, strict=True) if kind != "c"] + ["z"]
    dice.shuffle(result)
    if x.size * 4 > 8192:
        return None
    return jnp.tanh(jnp.einsum(f"{letters},{other}->{''.join(result)}", x, w) / 2)


def windows(dice: Random, pool: list[Any]) -> Any:
    x = pick(dice, pool, lambda x: is_float(x) and x.ndim >= 1 and x.size >= 16)
    if x is None:
        return None
    kind = dice.randrange(4)
    if kind == 0:
        window = tuple(dice.randint(1, min(3, n)) for n in x.shape)
        strides = tuple(dice.randint(1, 2) for _ in x.shape)
        start, function = dice.choice(((0.0, lax.add), (-np.inf, lax.max), (np.inf, lax.min)))
        padding = dice.choice(("SAME", "VALID"))
        pooled = lax.reduce_window(x, np.array(start, x.dtype), function, window, strides, padding)
        return jnp.where(jnp.isfinite(pooled), pooled, 0)
    x = x.astype(jnp.float32).reshape(-1)
    if kind == 1:
        return jnp.convolve(x, constant(dice, 3), dice.choice(("full", "same")))[: x.size]
    return line_convolution(dice, x) if kind == 2 else plane_convolution(dice, x)


def line_convolution(dice: Random, x: Any) -> Any:
    if x.size < 32:
        return None
    image = x[: x.size - x.size % 4].reshape(1, -1, 4)
    groups = dice.choice((1, 1, 2, 4))
    kernel, strides = constant(dice, 3, 4 // groups, 8), (dice.randint(1, 3),)
    out = lax.conv_general_dilated(
        image, kernel, strides, [(dice.randint(0, 2), dice.randint(0, 2))],
        lhs_dilation=(dice.randint(1, 2),), rhs_dilation=(dice.randint(1, 2),),
        dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=groups,
    )  # fmt: skip
    return jnp.tanh(out)


def plane_convolution(dice: Random, x: Any) -> Any:
    if x.size < 64:
        return None
    batch = dice.choice((1, 2, 4))
    image = x[: x.size - x.size % (8 * batch)].reshape(batch, 2, -1, 4)
    kernel = constant(dice, 3, 2, dice.choice((1, 2, 3)), dice.choice((1, 3)))
    out = lax.conv_general_dilated(
        image, kernel, (dice.randint(1, 2), dice.randint(1, 2)), "SAME",
        dimension_numbers=("NCHW", "OIHW", "NHWC"),
    )  # fmt: skip
    return jnp.tanh(out)


def transform(dice: Random, pool: list[Any]) -> Any:
    """Fourier transforms."""
    x = pick(dice, pool, lambda x: x.ndim and (is_complex(x) or is_float(x)) and x.shape[-1] > 1)
    if x is None:
        return None
    if is_complex(x):
        return dice.choice((jnp.fft.fft, jnp.fft.ifft))(x, axis=axis_of(dice, x)) / 2
    x = jnp.tanh(x.astype(jnp.float32))
    kind = dice.randrange(3)
    if kind == 0:
        return jnp.fft.rfft(x) / 2
    return (
        jnp.fft.fft(x, axis=axis_of(dice, x)) if kind == 1 else jnp.fft.irfft(jnp.fft.rfft(x)) * 2
    )


def factorization(dice: Random, pool: list[Any]) -> Any:
    """Cholesky factors and triangular solves of a matrix that is positive definite."""
    x = pick_single(dice, pool, 2)
    if x is None or x.shape[-1] > 16:
        return None
    x = jnp.tanh(x)
    matrix = jnp.einsum("...ij,...ik->...jk", x, x) / x.shape[-2] + 2 * jnp.eye(x.shape[-1])
    factor = jnp.linalg.cholesky(matrix)
    if dice.random() < 0.4:
        return factor
    lower = dice.random() < 0.5
    return jax.scipy.linalg.solve_triangular(
        factor if lower else factor.mT, x.mT, lower=lower, trans=dice.choice((0, 1))
    )


def random_numbers(dice: Random, pool: list[Any]) -> Any:
    """Numbers of jax.random; the key is a constant or made of data."""
    key = jax.random.key(dice.randrange(100))
    x = pick(dice, pool, is_ordered)
    if x is not None and dice.random() < 0.4:
        total = jnp.clip(jnp.sum(x.astype(jnp.float32)), 0, 9)
        key = jax.random.fold_in(key, coarse(total).astype(jnp.int32))
    shape = tuple(dice.choice((3, 8, 5)) for _ in range(dice.randint(1, 2)))
    kind = dice.randrange(7)
    if kind == 0:
        return jax.random.permutation(key, shape[0])
    if kind == 1 and x is not None and x.ndim:
        return jax.random.permutation(key, x, axis=0)
    if kind == 2:
        return jax.random.bits(key, shape, jnp.uint32)
    if kind == 3:
        return jax.random.categorical(key, jnp.ones((4, 5)))
    if kind == 4 and x is not None and is_float(x):
        return jnp.where(jax.random.bernoulli(key, 0.7, x.shape), x * 2, 0)
    draw = dice.choice((jax.random.normal, jax.random.uniform, jax.random.exponential))
    return draw(key, shape)
