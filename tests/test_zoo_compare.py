"""The comparison of the zoo's outputs with JAX's: by type, within what JAX's own runs differ by."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from benchmarks.zoo.compare import compare_leaf


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float16"])
def test_narrow_floats_are_numbers_whether_or_not_they_come_as_bits(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    want = np.array([1.0, -0.5, 0.25]).astype(dtype)
    near = want.copy()
    near.view(f"u{dtype.itemsize}")[0] += 1
    wrong = np.array([1.0, 0.5, 0.25]).astype(dtype)
    bits = [x.view(f"u{dtype.itemsize}") if name != "float16" else x for x in (near, wrong, want)]
    assert compare_leaf("out", name, bits[0], [bits[2], bits[2]]).agrees
    assert not compare_leaf("out", name, bits[1], [bits[2], bits[2]]).agrees


def test_integers_have_to_be_equal() -> None:
    want = np.arange(3, dtype=np.int32)
    assert compare_leaf("out", "int32", want, [want, want]).agrees
    assert not compare_leaf("out", "int32", want + 1, [want, want]).agrees
