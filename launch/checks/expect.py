"""Compare outputs with expected ones: an element passes when |got - want| <= atol + rtol |want|."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from launch.data.inputs import Array, InputError, from_storage
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, PrimitiveType

#: Units in the last place that two correct programs may differ by, of the output's largest element.
_DEFAULT_ULPS = 64
_DEFAULT_RTOL = {
    PrimitiveType.F64: 1e-12,
    PrimitiveType.C128: 1e-12,
    PrimitiveType.F32: 1e-5,
    PrimitiveType.C64: 1e-5,
    PrimitiveType.F16: 4e-3,
    PrimitiveType.BF16: 3e-2,
}

#: The least normal number of each type whose smaller, denormal numbers XLA CPU or a tile unit may flush to zero.
_LEAST_NORMAL = {
    PrimitiveType.F64: 2.0**-1022,
    PrimitiveType.C128: 2.0**-1022,
    PrimitiveType.F32: 2.0**-126,
    PrimitiveType.C64: 2.0**-126,
    PrimitiveType.BF16: 2.0**-126,
}


@dataclass(frozen=True)
class Tolerance:
    atol: float
    rtol: float


@dataclass(frozen=True)
class Expected:
    """One expected output: all elements, or samples at flat ``positions``."""

    name: str
    shape: ArrayShape
    values: Array
    tolerance: Tolerance
    positions: Array | None = None


class Verdict(Enum):
    """Result of a comparison: within the tolerance, beyond it by amplified rounding (rounding.py), or wrong."""

    AGREES = "agrees"
    ROUNDING = "rounding"
    DIFFERS = "differs"


@dataclass(frozen=True)
class OutputCheck:
    """Difference of one output from the expected one.

    of_tolerance: the largest ratio of a difference to its tolerance; the output agrees if it is <= 1.
    amplified_at: the operation that amplifies rounding most, if the verdict is ROUNDING.
    path: position of the output in the user's program (a pytree path); "" if unknown.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_abs_diff: float
    max_rel_diff: float
    of_tolerance: float
    verdict: Verdict
    amplified_at: str = ""
    path: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict is not Verdict.DIFFERS

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": self.path or None,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "max_abs_diff": self.max_abs_diff,
            "max_rel_diff": self.max_rel_diff,
            "of_tolerance": self.of_tolerance,
            "verdict": self.verdict.value,
            "amplified_at": self.amplified_at or None,
            "ok": self.ok,
        }


def read_expected(
    path: Path, shapes: Sequence[ArrayShape], atol: float | None = None, rtol: float | None = None
) -> list[Expected]:
    """Return out0, out1, ... of ``path``, which may be samples (outN_val at flat positions outN_idx).

    A ``case.json`` in the same folder contains each output's name and tolerance; ``atol`` and ``rtol`` override it.
    Raises InputError if the file does not fit ``shapes``.
    """
    # A run that compares nothing reads no file.
    from launch.data.npz import StoredArrays

    stored = StoredArrays(path)
    count = len({name.removesuffix("_idx").removesuffix("_val") for name in stored})
    if count != len(shapes):
        raise InputError(f"{path} holds {count} outputs, the module has {len(shapes)}")
    described = _described_outputs(path.parent / "case.json")
    expected = []
    for index, shape in enumerate(shapes):
        key = f"out{index}"
        values, positions = _stored_output(stored, stored.name_of("out", index), shape, path)
        note = described[index] if index < len(described) else {}
        default = default_tolerance(shape.element_type, values)
        tolerance = Tolerance(
            atol if atol is not None else float(note.get("atol", default.atol)),
            rtol if rtol is not None else float(note.get("rtol", default.rtol)),
        )
        expected.append(
            Expected(f"{key}{note.get('name', '')}", shape, values, tolerance, positions)
        )
    return expected


def default_tolerance(element_type: PrimitiveType, want: Array) -> Tolerance:
    """Return the tolerance of floats across programs: 64 ulp of the largest element, and 64 of the least normal
    numbers.

    Smaller numbers are zero to XLA's CPU backend and to tile units. Other types must be equal.
    """
    rtol = _DEFAULT_RTOL.get(element_type)
    if rtol is None:
        return Tolerance(0.0, 0.0)
    magnitudes = np.abs(widened(want, element_type))
    finite = magnitudes[np.isfinite(magnitudes)]
    mantissa_bits = {"f64": 52, "c128": 52, "f32": 23, "c64": 23, "f16": 10, "bf16": 7}[
        element_type.value
    ]
    ulps = _DEFAULT_ULPS if mantissa_bits > 10 else 4
    least = _DEFAULT_ULPS * _LEAST_NORMAL.get(element_type, 0.0)
    return Tolerance(ulps * 2.0**-mantissa_bits * float(finite.max(initial=0.0)) + least, rtol)


@dataclass(frozen=True)
class Elements:
    """The compared elements of one output, in a wider type: actual and expected values, their difference, and its
    limit.
    """

    have: Array
    want: Array
    difference: Array
    limit: Array


def compare_elements(got: Array, expected: Expected) -> Elements:
    """Compare element by element; nan equals nan, and a value that should be finite but is not differs infinitely."""
    kind = expected.shape.element_type
    if expected.positions is not None:
        got = got.reshape(-1)[expected.positions]
    have, want = widened(got, kind), widened(expected.values, kind)
    with np.errstate(all="ignore"):
        difference = distance(have, want)
        size = np.abs(want).astype(np.float64)
        limit = expected.tolerance.atol + expected.tolerance.rtol * np.where(
            np.isfinite(size), size, 0.0
        )
    return Elements(have, want, difference, np.asarray(limit))


def distance(one: Array, other: Array) -> Array:
    """Return |one - other| element by element: 0 for two nan, infinite where only one is finite."""
    same = (one == other) | ((one != one) & (other != other))
    with np.errstate(all="ignore"):
        difference = np.where(same, 0.0, np.abs(one - other)).astype(np.float64)
    return np.where(np.isnan(difference), np.inf, difference)


def check_output(got: Array, expected: Expected) -> OutputCheck:
    """Compare one output; the verdict is by the tolerance alone."""
    if not _is_comparable(got, expected):
        return _of_another_size(got, expected)
    found = compare_elements(got, expected)
    difference = found.difference
    with np.errstate(all="ignore"):
        ratio = np.where(difference == 0, 0.0, difference / found.limit)
        relative = np.where(difference == 0, 0.0, difference / np.abs(found.want))
    worst = float(ratio.max(initial=0.0))
    return OutputCheck(
        expected.name,
        got.shape,
        expected.shape.element_type.value,
        float(difference.max(initial=0.0)),
        float(relative.max(initial=0.0)),
        worst,
        Verdict.AGREES if worst <= 1.0 else Verdict.DIFFERS,
    )


def _is_comparable(got: Array, expected: Expected) -> bool:
    """Return whether ``got`` has the expected elements: a bounded output may have another size."""
    if expected.positions is None:
        return bool(got.shape == expected.values.shape)
    return bool(np.all(expected.positions < got.size))


def _of_another_size(got: Array, expected: Expected) -> OutputCheck:
    dtype = expected.shape.element_type.value
    return OutputCheck(
        expected.name, got.shape, dtype, math.inf, math.inf, math.inf, Verdict.DIFFERS
    )


def _stored_output(
    stored: Mapping[str, Array], key: str, shape: ArrayShape, path: Path
) -> tuple[Array, Array | None]:
    if key in stored:
        sizes = _sizes_within(shape, stored[key].shape)
        return from_storage(stored[key], sizes, f"{path}: {key}"), None
    if f"{key}_val" not in stored or f"{key}_idx" not in stored:
        raise InputError(f"{path}: {key} is missing")
    positions = stored[f"{key}_idx"]
    sampled = ArrayShape(shape.element_type, positions.shape)
    return from_storage(stored[f"{key}_val"], sampled, f"{path}: {key}_val"), positions


def _sizes_within(shape: ArrayShape, sizes: tuple[int, ...]) -> ArrayShape:
    """Return ``shape`` at ``sizes``, if they differ in bounded dimensions alone and are within the bounds."""
    if len(sizes) != shape.rank or not any(shape.dynamic):
        return shape
    each = zip(sizes, shape.dims, shape.dynamic, strict=True)
    if not all(size == bound or (marked and size < bound) for size, bound, marked in each):
        return shape
    return ArrayShape(shape.element_type, sizes)


def _described_outputs(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        outputs = json.loads(path.read_text(encoding="utf-8")).get("outputs", [])
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable case description: {error}") from error
    return list(outputs)


def widened(array: Array, kind: PrimitiveType) -> Array:
    """Convert to float64 or complex128; integers and pred to 64-bit integers, which are exact."""
    if kind.is_complex:
        return array.astype(np.complex128)
    if kind.is_floating:
        return array.astype(np.float64)
    return array.astype(np.uint64 if kind is PrimitiveType.U64 else np.int64)
