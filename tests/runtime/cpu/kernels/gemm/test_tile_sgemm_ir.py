"""Tests of f32 products on the tile unit beside OpenBLAS's: errors, edges, transposes, numbers beyond its range."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.native.tile_unit_off import without_tile_unit
from runtime.cpu.kernels.gemm.tile_sgemm_ir import FUNCTION, tile_gemm_code
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.kernels.gemm.tuning import TileThresholds
from runtime.cpu.libraries.blas import gemm_function
from spmd.shape import PrimitiveType

pytestmark = pytest.mark.skipif(
    not has_tile_unit(), reason="no tile unit, or the system does not permit its use"
)
Array = np.ndarray[Any, Any]
#: Half of a unit in f32's last place, relative to the sum of the products' magnitudes.
UNIT = 2.0**-24


@cache
def functions() -> dict[str, Callable[..., None]]:
    """Return both functions as ctypes calls them; ours is used for all sizes."""
    with without_tile_unit():
        blas = gemm_function(PrimitiveType.F32)
    assert blas is not None
    code = tile_gemm_code(blas.address, blas.index_bits, None, TileThresholds(1, 1, 1))
    size = ctypes.c_int64 if blas.index_bits == 64 else ctypes.c_int32
    pointer, number, flag = ctypes.c_void_p, ctypes.c_float, ctypes.c_int32
    sizes = (flag, flag, flag, size, size, size)
    types = (*sizes, number, pointer, size, pointer, size, number, pointer, size)
    prototype = ctypes.CFUNCTYPE(None, *types)
    prototype.keep = code  # type: ignore[attr-defined]
    return {"ours": prototype(code.address(FUNCTION)), "blas": prototype(blas.address)}


def product(which: str, lhs: Array, rhs: Array, out: Array, *, add: bool = False) -> None:
    """Compute out = lhs rhs, or out += lhs rhs; operands may lie by row or by column."""
    turned = [x.strides[1] != x.itemsize for x in (lhs, rhs)]
    leading = [
        (x.strides[1] if turn else x.strides[0]) // x.itemsize
        for x, turn in ((lhs, turned[0]), (rhs, turned[1]), (out, False))
    ]
    flags = [112 if turn else 111 for turn in turned]
    (m, n), k = out.shape, lhs.shape[1]
    a, b, c = (x.ctypes.data for x in (lhs, rhs, out))
    beta = 1.0 if add else 0.0
    functions()[which](101, *flags, m, n, k, 1.0, a, leading[0], b, leading[1], beta, c, leading[2])


def lying(values: Array, turned: bool) -> Array:
    """Return the values in rows that are 3 elements apart, or in such columns."""
    rows, columns = values.shape
    whole = np.full((columns, rows + 3) if turned else (rows, columns + 3), 7, np.float32)
    part = whole[:, :-3].T if turned else whole[:, :-3]
    part[...] = values
    return part


def errors(lhs: Array, rhs: Array, which: str) -> Array:
    """Return the error of each element, in half units of the last place of the sum of its products' magnitudes."""
    out = np.full((len(lhs), rhs.shape[1]), np.nan, np.float32)
    product(which, lhs, rhs, out)
    a, b = lhs.astype(np.float64), rhs.astype(np.float64)
    # Below the smallest normal number results are multiples of 2^-149.
    size = np.maximum(np.abs(a) @ np.abs(b), 2.0**-126)
    return np.asarray(np.abs(out - a @ b) / size / UNIT)


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.standard_normal(shape)


def _positive(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.uniform(0, 1, shape)


def _wide(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 30, shape)


def _tiny(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return numbers down to denormal ones, with products around the smallest normal number."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-75, -50, shape)


def _denormal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return denormal numbers among ordinary ones."""
    return np.where(rng.random(shape) < 0.5, 2.0**-149 * rng.integers(0, 999, shape), 1.0)


def _large(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return numbers of which some products are beyond the unit's range, which it finds out block by block."""
    return rng.standard_normal(shape) * np.where(rng.random(shape) < 1e-3, 2.0**55, 1.0)


def _low_bits(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return numbers whose bf16 parts are all as large as they can be, with the same sign."""
    return 1 + 2.0**-8 - 2.0**-16 + 2.0**-23 * rng.integers(0, 128, shape)


KINDS = [_normal, _positive, _wide, _tiny, _denormal, _large, _low_bits]
SIZES = [(32, 32, 32), (33, 17, 70), (70, 50, 33), (64, 96, 700), (40, 1100, 20), (5, 3, 1500)]
#: m, n and k of products whose lhs stays packed, while the columns are too many and come in several blocks.
LHS_STAYS = [(33, 901, 500), (100, 611, 1030)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__[1:])
def test_errors_are_those_of_f32(kind: Callable[..., Array]) -> None:
    """Errors are within f32's bound everywhere, and on the whole not much larger than OpenBLAS's."""
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {"ours": [], "blas": []}
    for m, n, k in [*SIZES, *LHS_STAYS]:
        for turns in itertools.product([False, True], repeat=2):
            lhs = lying(kind(rng, (m, k)), turns[0])
            rhs = lying(kind(rng, (k, n)), turns[1])
            for which, worst in found.items():
                error = errors(lhs, rhs, which)
                assert error.max() <= max(k, 2)
                worst.append(float(error.max()))
    assert max(found["ours"]) <= 1.5 * max(found["blas"])
    assert np.mean(found["ours"]) <= 1.5 * np.mean(found["blas"])


def test_sums_that_cancel() -> None:
    rng = np.random.default_rng(1)
    lhs = rng.standard_normal((64, 400))
    lhs = np.concatenate([lhs, -lhs * (1 + 1e-6)], axis=1).astype(np.float32)
    half = rng.standard_normal((400, 64))
    rhs = np.concatenate([half, half]).astype(np.float32)
    assert errors(lhs, rhs, "ours").max() <= 1.5 * errors(lhs, rhs, "blas").max()


def test_a_deep_product() -> None:
    rng = np.random.default_rng(2)
    lhs, rhs = (rng.standard_normal(s).astype(np.float32) for s in ((40, 5000), (5000, 40)))
    assert errors(lhs, rhs, "ours").max() <= errors(lhs, rhs, "blas").max()


@pytest.mark.parametrize(
    "sizes",
    [(m, n, k) for m in (1, 2, 15, 16, 17, 31, 34) for n in (1, 16, 33) for k in (1, 31, 34)]
    + LHS_STAYS,
)
def test_edges_leave_what_is_beside_alone(sizes: tuple[int, int, int]) -> None:
    """Sums of whole numbers are exact; reads beyond the operands would meet sevens."""
    m, n, k = sizes
    rng = np.random.default_rng(3)
    for turns in itertools.product([False, True], repeat=2):
        lhs = lying(rng.integers(-9, 10, (m, k)), turns[0])
        rhs = lying(rng.integers(-9, 10, (k, n)), turns[1])
        whole = np.full((m + 2, n + 5), 3, np.float32)
        out = whole[1:-1, 2:-3]
        product("ours", lhs, rhs, out)
        np.testing.assert_array_equal(out, lhs @ rhs)
        product("ours", lhs, rhs, out, add=True)
        np.testing.assert_array_equal(out, 2 * (lhs @ rhs))
        out[...] = 3
        assert (whole == 3).all()


@pytest.mark.parametrize("columns", [70, 700])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38])
def test_numbers_beyond_the_units_range_are_blass(value: float, columns: int) -> None:
    """BLAS computes the blocks of the result that such numbers reach, and nothing changes elsewhere.

    With many columns lhs stays packed.
    """
    rng = np.random.default_rng(4)
    lhs, rhs = (rng.standard_normal(s).astype(np.float32) for s in ((70, 600), (600, columns)))
    for (row, column), add in itertools.product([(3, 5), (69, 599)], [False, True]):
        a, b = lhs.copy(), rhs.copy()
        a[row, column] = value
        b[column, row - 70] = 0
        out = {which: np.ones((70, columns), np.float32) for which in functions()}
        for which, to in out.items():
            product(which, a, b, to, add=add)
        np.testing.assert_array_equal(np.isnan(out["ours"]), np.isnan(out["blas"]))
        np.testing.assert_array_equal(np.isinf(out["ours"]), np.isinf(out["blas"]))
        finite = np.isfinite(out["blas"])
        np.testing.assert_allclose(out["ours"][finite], out["blas"][finite], rtol=1e-3, atol=1e-3)
        a, b = b.T, a.T
        out = {which: np.ones((columns, 70), np.float32) for which in functions()}
        product("ours", a, b, out["ours"])
        product("blas", a, b, out["blas"])
        np.testing.assert_array_equal(np.isnan(out["ours"]), np.isnan(out["blas"]))


def test_a_nan_of_any_payload_stays_one() -> None:
    lhs = np.ones((33, 40), np.float32)
    lhs.view(np.uint32)[4, 5] = 0x7FFFFFFF
    out = np.zeros((33, 40), np.float32)
    product("ours", lhs, np.ones((40, 40), np.float32), out)
    assert np.isnan(out[4]).all()
    np.testing.assert_array_equal(np.delete(out, 4, 0), 40)


def test_bits_do_not_depend_on_where_matrices_lie() -> None:
    rng = np.random.default_rng(5)
    values = [rng.standard_normal(s).astype(np.float32) for s in ((50, 90), (90, 70))]
    results = []
    for shift in range(0, 17, 3):
        moved = []
        for x in (*values, np.zeros((50, 70), np.float32)):
            room = np.empty(x.size + 32, np.float32)
            moved.append(room[shift : shift + x.size].reshape(x.shape))
            moved[-1][...] = x
        product("ours", *moved)
        results.append(moved[2].copy())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
