"""Products of matrices in compressed rows, beside dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spmd.errors import UnsupportedError

RNG = np.random.default_rng(4)


def compressed(dense: Any, spare: int) -> tuple[Any, Any, Any]:
    """Return the values, the first of each row, and the columns; ``spare`` values behind the last row mean nothing."""
    rows, columns = np.nonzero(dense)
    first = np.searchsorted(rows, np.arange(len(dense) + 1)).astype(np.int32)
    values = np.concatenate([dense[rows, columns], np.full(spare, 7, dense.dtype)])
    return values, first, np.concatenate([columns, np.full(spare, 2)]).astype(np.int32)


def text(kind: str, count: int, rows: int, x: str, result: str) -> str:
    return f"""
ENTRY main {{
  v = {kind}[{count}] parameter(0)
  p = s32[{rows + 1}] parameter(1)
  c = s32[{count}] parameter(2)
  x = {kind}[{x}] parameter(3)
  ROOT z = {kind}[{result}] custom-call(v, p, c, x), custom_call_target="cpu_csr_sparse_dense_ffi"
}}"""


@pytest.mark.parametrize("spare", [0, 5])
@pytest.mark.parametrize("width", [(), (3,)], ids=["vector", "matrix"])
@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("s32", np.int32)])
def test_products(run, kind: str, dtype: Any, width: tuple[int, ...], spare: int) -> None:
    dense = (RNG.integers(-4, 5, (16, 11)) * (RNG.random((16, 11)) < 0.3)).astype(dtype)
    dense[[0, 7, 8, 15]] = 0  # rows without values: the first, two in the middle, the last
    values, first, columns = compressed(dense, spare)
    x = RNG.integers(-4, 5, (11, *width)).astype(dtype)
    sizes = [",".join(map(str, (n, *width))) for n in (11, 16)]
    program = text(kind, len(values), 16, *sizes)
    np.testing.assert_array_equal(run(program, values, first, columns, x)[0], dense @ x)


def test_no_values(run) -> None:
    arrays = [np.zeros(0, np.float32), np.zeros(5, np.int32), np.zeros(0, np.int32)]
    found = run(text("f32", 0, 4, "3", "4"), *arrays, np.ones(3, np.float32))[0]
    assert found.tolist() == [0, 0, 0, 0]


def test_other_operands_are_refused(run) -> None:
    program = text("f32", 6, 4, "3,2,2", "4,2,2")
    arrays = [np.zeros(6, np.float32), np.zeros(5, np.int32), np.zeros(6, np.int32)]
    with pytest.raises(UnsupportedError, match="no compressed rows"):
        run(program, *arrays, np.zeros((3, 2, 2), np.float32))
