"""Each collective once more, in NumPy over a list of per-rank arrays: what the communicators are compared with.

Written from the operation semantics of HLO; imports nothing of the communicators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
FLOATS = ("float16", "float32", "float64")
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")
COMPLEX = ("complex64", "complex128")
DTYPES = (*FLOATS, *NARROW, *INTEGERS, *COMPLEX, "bool")


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name) if name in NARROW else name)


def operations_for(name: str) -> list[str]:
    if name in COMPLEX:
        return ["sum", "product"]
    if name in FLOATS + NARROW:
        return ["sum", "product", "min", "max"]
    return list(OPERATIONS)


def make(rank: int, shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    """Rank's operand: small values with fractions where the type has them, so that sums round."""
    rng = np.random.default_rng([seed, rank, *shape])
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0, 100, shape)).astype(dtype)
    values = np.asarray(rng.standard_normal(shape))
    if dtype.kind == "c":
        values = np.asarray(values + 1j * rng.standard_normal(shape))
    return values.astype(dtype)


def reduced(values: Sequence[np.ndarray], operation: str) -> np.ndarray:
    """Left to right; narrow floats in f32 and rounded once."""
    dtype = values[0].dtype
    narrow = dtype.name in NARROW or dtype == np.float16
    # One-dimensional: NumPy multiplies complex scalars by other instructions than complex arrays.
    wide = [np.atleast_1d(value.astype(np.float32) if narrow else value) for value in values]
    with np.errstate(all="ignore"):
        total = functools.reduce(OPERATIONS[operation], wide).astype(dtype)
    return total.reshape(values[0].shape)


def all_gathered(values: Sequence[np.ndarray], dimension: int) -> np.ndarray:
    return np.concatenate(values, axis=dimension)


def part(value: np.ndarray, index: int, count: int, dimension: int) -> np.ndarray:
    size = value.shape[dimension] // count
    return np.take(value, range(index * size, (index + 1) * size), axis=dimension)


def exchanged(values: Sequence[np.ndarray], index: int, dimension: int) -> np.ndarray:
    count = len(values)
    return np.concatenate(
        [part(value, index, count, dimension) for value in values], axis=dimension
    )


def permuted(
    values: Sequence[np.ndarray], pairs: Sequence[tuple[int, int]], rank: int
) -> np.ndarray:
    for source, target in pairs:
        if target == rank:
            return values[source]
    return np.zeros_like(values[rank])
