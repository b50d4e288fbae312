"""Tests of bf16, 8-bit and mixed products beside exact ones: in any layout, on the tile unit and without it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from benchmarks.native.tile_unit_off import without_tile_unit
from runtime.codegen.llvm.jit import host_has
from runtime.cpu.kernels.gemm import choose, tuning
from runtime.cpu.kernels.gemm.choose import plan_dot, suits_tiles
from runtime.cpu.kernels.gemm.tile_types import TILE_TYPES, TileTypes
from runtime.cpu.kernels.gemm.tile_unit import Unit, has_tile_unit, narrow_unit
from runtime.cpu.kernels.native_call import NativeAction
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from spmd.shape import PrimitiveType

pytestmark = pytest.mark.skipif(
    narrow_unit(is_float=True) is None or narrow_unit(is_float=False) is None,
    reason="nothing here multiplies narrow numbers as they are, or the system does not permit its use",
)
P = PrimitiveType
Array = np.ndarray[Any, Any]
Types = tuple[PrimitiveType, PrimitiveType, PrimitiveType]
#: Products with f32, which have more parts, are the tile unit's alone.
MOST_PARTS = 3 if has_tile_unit() else 1
TYPES = [(f.lhs, f.rhs, f.result) for f in TILE_TYPES if f.parts * f.rhs_parts <= MOST_PARTS]
ONE_PART = [(f.lhs, f.rhs, f.result) for f in TILE_TYPES if f.parts == f.rhs_parts == 1]
SIZES = [(40, 70, 33), (1, 520, 65), (64, 64, 64), (70, 1300, 17), (513, 33, 3), (33, 2000, 400)]


@pytest.fixture(autouse=True)
def _for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the unit for few lines, and for few products of f32, too."""
    monkeypatch.setattr(tuning, "SPLIT_LEAST_PRODUCTS", 1 << 14)
    monkeypatch.setattr(tuning, "SPLIT_LEAST_LINES", 1)
    monkeypatch.setattr(tuning, "BF16_LEAST_LINES", 1)


def bound(types: Types, batch: tuple[int, ...], lhs: Array, rhs: Array, out: Array) -> Action:
    sizes = (lhs.shape[-2], lhs.shape[-1], rhs.shape[-1])
    kernel = plan_dot(batch, sizes, types)
    assert kernel is not None
    assert kernel.on_tiles
    assert not kernel.scratch_dims()
    action = CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,)))
    assert isinstance(action, NativeAction)
    return action


def values(rng: np.random.Generator, shape: tuple[int, ...], kind: PrimitiveType) -> Array:
    if kind.is_floating:
        return rng.standard_normal(shape).astype(kind.numpy)
    info = np.iinfo(kind.numpy)
    return rng.integers(info.min, info.max, shape, kind.numpy, endpoint=True)


def lying(array: Array, how: str) -> Array:
    """Return the array by row, by column, or as a part of something larger.

    It may have any number of dimensions before the last two.
    """
    if how == "columns":
        return np.swapaxes(lying(np.swapaxes(array, -1, -2), "rows"), -1, -2)
    gap = 3 if how == "part" else 0
    whole = np.full((*array.shape[:-1], array.shape[-1] + gap), 5, array.dtype)
    part = whole[..., : array.shape[-1]]
    part[...] = array
    return part


def check(types: Types, lhs: Array, rhs: Array, out: Array, batch: tuple[int, ...] = ()) -> None:
    out[...] = 77
    bound(types, batch, lhs, rhs, out)()
    if types[2].is_integer:
        wide = lhs.astype(np.int64) @ rhs.astype(np.int64)
        np.testing.assert_array_equal(out, wide.astype(types[2].numpy))
        return
    a, b = lhs.astype(np.float64), rhs.astype(np.float64)
    unit = 2.0**-8 if types[2] is P.BF16 else 2.0**-22
    assert (np.abs(out.astype(np.float64) - a @ b) <= unit * (np.abs(a) @ np.abs(b))).all()


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_however_matrices_lie(types: Types) -> None:
    rng = np.random.default_rng(0)
    hows = list(itertools.product(["rows", "columns", "part"], ["rows", "columns"]))
    for (m, k, n), results in itertools.product(SIZES, ["rows", "columns", "part"]):
        for left, right in hows:
            lhs = lying(values(rng, (m, k), types[0]), left)
            rhs = lying(values(rng, (k, n), types[1]), right)
            check(types, lhs, rhs, lying(np.zeros((m, n), types[2].numpy), results))


@pytest.mark.skipif(not has_tile_unit(), reason="all the others are of vectors here")
@pytest.mark.parametrize("types", ONE_PART, ids=str)
def test_vectors_where_there_is_a_tile_unit(types: Types, monkeypatch: pytest.MonkeyPatch) -> None:
    if not host_has("avx512bf16" if types[0].is_floating else "avx512vnni"):
        pytest.skip("this processor has no such instructions")
    monkeypatch.setattr(choose, "narrow_unit", lambda *, is_float: Unit.VECTORS)
    rng = np.random.default_rng(0)
    for m, k, n in SIZES:
        lhs, rhs = values(rng, (m, k), types[0]), values(rng, (k, n), types[1])
        check(types, lhs, rhs, np.zeros((m, n), types[2].numpy))


@pytest.mark.parametrize("types", ONE_PART, ids=str)
def test_all_numbers_of_rows_and_columns(types: Types, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in registers are of 8 rows and of 16 or 32 columns."""
    monkeypatch.setattr(tuning, "NARROW_LEAST_PRODUCTS", 1)
    rng = np.random.default_rng(5)
    for m, n in itertools.product([1, 7, 8, 9, 16, 17, 25, 32, 33], [1, 15, 16, 17, 32, 33]):
        lhs, rhs = values(rng, (m, 70), types[0]), values(rng, (70, n), types[1])
        check(types, lhs, rhs, np.zeros((m, n), types[2].numpy))


@pytest.mark.parametrize("types", [(P.BF16, P.BF16, P.BF16), (P.S8, P.U8, P.S32)], ids=str)
def test_batches_and_broadcast_operands(types: Types) -> None:
    rng = np.random.default_rng(1)
    lhs = values(rng, (3, 2, 20, 40), types[0]).transpose(1, 0, 2, 3)
    rhs = np.broadcast_to(values(rng, (3, 40, 30), types[1]), (2, 3, 40, 30))
    check(types, lhs, rhs, np.zeros((2, 3, 20, 30), types[2].numpy), (2, 3))


@pytest.mark.parametrize(("lhs", "rhs"), list(itertools.product([P.S8, P.U8], repeat=2)), ids=str)
def test_sums_of_bytes_are_modulo_the_results_range(lhs: P, rhs: P) -> None:
    """The depth has several blocks, and the sum of the largest products of u8 exceeds 2^31."""
    depth = 40_000
    a = np.full((16, depth), np.iinfo(lhs.numpy).min or 255, lhs.numpy)
    b = np.full((depth, 17), np.iinfo(rhs.numpy).min or 255, rhs.numpy)
    check((lhs, rhs, P.S32), a, b, np.zeros((16, 17), np.int32))


def test_deep_sums_into_bf16_are_not_rounded_on_the_way() -> None:
    rng = np.random.default_rng(2)
    lhs, rhs = values(rng, (20, 4000), P.BF16), values(rng, (4000, 20), P.BF16)
    check((P.BF16,) * 3, lhs, rhs, np.zeros((20, 20), P.BF16.numpy))
    assert not suits_tiles((P.BF16, P.BF16, P.BF16), (64, 5000, 64))
    assert suits_tiles((P.BF16, P.BF16, P.F32), (64, 5000, 64))


def test_products_below_the_smallest_normal_number() -> None:
    rng = np.random.default_rng(3)
    types = (P.BF16, P.BF16, P.F32)
    lhs, rhs = ((1e-20 * rng.standard_normal(s)).astype(P.BF16.numpy) for s in ((40, 50), (50, 40)))
    out = np.zeros((40, 40), np.float32)
    bound(types, (), lhs, rhs, out)()
    exact = lhs.astype(np.float64) @ rhs.astype(np.float64)
    assert np.abs(out - exact).max() <= 2.0**-148
    assert np.abs(exact).max() > 2.0**-135


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, float(np.finfo("f").max)])
@pytest.mark.parametrize("result", [P.F32, P.BF16])
@pytest.mark.parametrize(
    ("lhs_type", "rhs_type"),
    sorted({types[:2] for types in TYPES if types[0].is_floating}, key=str),
    ids=str,
)
def test_numbers_beyond_the_scaled_range(
    value: float, result: PrimitiveType, lhs_type: PrimitiveType, rhs_type: PrimitiveType
) -> None:
    """The value is in either operand; the largest f32 number would be infinite if it were rounded to bf16."""
    lhs = np.ones((40, 50), lhs_type.numpy)
    rhs = np.full((50, 40), 0.5, rhs_type.numpy)
    for place in (lhs, rhs):
        place[33, 2] = value
        out = np.zeros((40, 40), result.numpy)
        bound((lhs_type, rhs_type, result), (), lhs, rhs, out)()
        exact = lhs.astype(np.float64) @ rhs.astype(np.float64)
        with np.errstate(over="ignore"):
            want = exact.astype(np.float32).astype(result.numpy).astype(np.float32)
        np.testing.assert_allclose(out.astype(np.float32), want, rtol=1e-6)
        place[33, 2] = 1


def test_planned_with_the_unit_and_bound_without() -> None:
    """A plan may come from another host: conversions then find memory of their own."""
    rng = np.random.default_rng(4)
    lhs, rhs = values(rng, (40, 50), P.BF16), values(rng, (50, 40), P.BF16)
    kernel = plan_dot((), (40, 50, 40), (P.BF16,) * 3)
    assert kernel is not None
    out = {which: np.zeros((40, 40), P.BF16.numpy) for which in ("with", "without")}
    CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out["with"],)))()
    with without_tile_unit():
        CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out["without"],)))()
        plain = plan_dot((), (40, 50, 40), (P.BF16,) * 3)
    assert plain is not None
    assert not plain.on_tiles
    with_it, without = (x.astype(np.float64) for x in out.values())
    np.testing.assert_allclose(with_it, without, rtol=2.0**-6, atol=2.0**-6)


def test_what_is_too_thin_for_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for unit, gains in ((Unit.VECTORS, False), (Unit.TILES, True)):
        monkeypatch.setattr(choose, "narrow_unit", lambda *, is_float, unit=unit: unit)
        assert suits_tiles((P.BF16,) * 3, (1, 1024, 1024)) == gains
        assert suits_tiles((P.BF16,) * 3, (1024, 8, 1024)) == gains
        assert suits_tiles((P.BF16, P.F32, P.F32), (512, 512, 512)) == gains
        assert suits_tiles((P.BF16,) * 3, (2, 1024, 1024))
        assert suits_tiles((P.S8, P.S8, P.S32), (1, 1024, 1024))


def test_forms_are_told_apart() -> None:
    assert TileTypes(P.U8, P.S8, P.S32).instruction == "tdpbusd"
    assert TileTypes(P.S8, P.U8, P.S32).instruction == "tdpbsud"
    assert not suits_tiles((P.F32, P.F32, P.F32), (512, 512, 512))
    assert suits_tiles((P.BF16, P.F32, P.F32), (512, 512, 512)) == has_tile_unit()
    assert not suits_tiles((P.F16, P.F32, P.F32), (512, 512, 512))
    assert not suits_tiles((P.S8, P.S8, P.S8), (512, 512, 512))
