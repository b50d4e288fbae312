"""Inputs of a recorded JAX case: those that lie beside it, or those that its seed makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from launch.data.inputs import read_inputs
from spmd.shape import ArrayShape, PrimitiveType

Array = np.ndarray[Any, np.dtype[Any]]
Draw = Callable[[np.random.Generator, tuple[int, ...], Mapping[str, Any]], Array]


def case_inputs(
    folder: Path, about: Mapping[str, Any], shapes: Sequence[ArrayShape]
) -> list[Array]:
    """Return the global arrays of ``folder``, whose ``case.json`` is ``about``.

    Argument i of a case without stored inputs is drawn from ``default_rng([seed, i])`` as its ``init`` says.
    """
    stored = folder / "inputs.npz"
    if stored.exists():
        return read_inputs(stored, shapes)
    return [
        _drawn(np.random.default_rng([about["seed"], i]), argument)
        for i, argument in enumerate(about["args"])
    ]


def _drawn(rng: np.random.Generator, argument: Mapping[str, Any]) -> Array:
    init = argument["init"]
    drawn = _DRAWS[init["kind"]](rng, tuple(argument["shape"]), init)
    if argument["dtype"] == "bf16":
        return drawn.astype(ml_dtypes.bfloat16)
    return drawn.astype(PrimitiveType(argument["dtype"]).numpy)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], init: Mapping[str, Any]) -> Array:
    scale, shift = np.float32(init.get("scale", 1.0)), np.float32(init.get("shift", 0.0))
    return rng.standard_normal(shape, np.float32) * scale + shift


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], init: Mapping[str, Any]) -> Array:
    low, high = np.float32(init["lo"]), np.float32(init["hi"])
    return rng.random(shape, np.float32) * (high - low) + low


def _integers(rng: np.random.Generator, shape: tuple[int, ...], init: Mapping[str, Any]) -> Array:
    return np.asarray(rng.integers(init["lo"], init["hi"], shape))


def _constant(_: np.random.Generator, shape: tuple[int, ...], init: Mapping[str, Any]) -> Array:
    return np.full(shape, init["value"])


def _flags(rng: np.random.Generator, shape: tuple[int, ...], init: Mapping[str, Any]) -> Array:
    return np.asarray(rng.random(shape, np.float32) < np.float32(init.get("p", 0.5)))


def _complex(rng: np.random.Generator, shape: tuple[int, ...], _: Mapping[str, Any]) -> Array:
    return rng.standard_normal(shape, np.float32) + 1j * rng.standard_normal(shape, np.float32)


def _permutation(rng: np.random.Generator, shape: tuple[int, ...], _: Mapping[str, Any]) -> Array:
    return rng.permutation(int(np.prod(shape))).reshape(shape)


def _positive_definite(
    rng: np.random.Generator, shape: tuple[int, ...], init: Mapping[str, Any]
) -> Array:
    size = shape[-1]
    root = rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(size))
    identity = np.eye(size, dtype=np.float32)
    return np.asarray(
        root @ np.swapaxes(root, -1, -2) + np.float32(init.get("diag", 1.0)) * identity
    )


_DRAWS: dict[str, Draw] = {
    "normal": _normal,
    "uniform": _uniform,
    "randint": _integers,
    "const": _constant,
    "bool": _flags,
    "complex": _complex,
    "permutation": _permutation,
    "spd": _positive_definite,
}
