"""Products through BLAS from native code: every way matrices lie, batches, conversions by blocks, and NumPy's otherwise."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.native_dot import VectorRegisters, blas_product, register_block
from runtime.cpu.kernels.native_call import NativeAction
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.dot import DotKernel
from spmd.shape import PrimitiveType

P = PrimitiveType
Array = np.ndarray[Any, Any]


@lru_cache(64)
def operand(shape: tuple[int, ...], kind: PrimitiveType, how: str) -> Array:
    """A ``matrix`` for many products, which none of them may write to."""
    found = matrix(shape, kind, how)
    found.flags.writeable = False
    return found


@lru_cache(64)
def product(
    kernel: DotKernel, lhs: tuple[tuple[int, ...], str], rhs: tuple[tuple[int, ...], str]
) -> Array:
    """NumPy's product of two operands (their shapes, and how they lie) in the kernel's result type."""
    wide = np.complex128 if kernel.lhs.is_complex else np.float64
    a = operand(lhs[0], kernel.lhs, lhs[1]).astype(wide)
    b = operand(rhs[0], kernel.rhs, rhs[1]).astype(wide)
    return np.matmul(a, b).astype(kernel.result.numpy)


def matrix(shape: tuple[int, ...], kind: PrimitiveType, how: str) -> Array:
    """Small whole numbers, whose products are exact. how: by row, by column, or as part of a larger array."""
    rng = np.random.default_rng(sum(shape))
    if how == "columns":
        return np.swapaxes(matrix((*shape[:-2], shape[-1], shape[-2]), kind, "rows"), -1, -2)
    if how == "part":
        wide = matrix((*shape[:-2], shape[-2] + 2, shape[-1] + 3), kind, "rows")
        return wide[..., 1:-1, 1:-2]
    numbers = rng.integers(-5, 6, shape).astype(kind.numpy)
    if kind.is_complex:
        numbers += 1j * rng.integers(-5, 6, shape)
    return numbers


def check(
    dims: tuple[int, int, int],
    hows: tuple[str, str, str],
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType] = (P.F32,) * 3,
    compute: PrimitiveType = P.F32,
    batch: tuple[int, ...] = (),
    native: bool = True,
) -> None:
    m, k, n = dims
    kernel = DotKernel(batch, m, k, n, *types, compute)
    lhs = operand((*batch, m, k), types[0], hows[0])
    rhs = operand((*batch, k, n), types[1], hows[1])
    out = matrix((*batch, m, n), types[2], hows[2])
    want = product(kernel, ((*batch, m, k), hows[0]), ((*batch, k, n), hows[1]))
    scratch = tuple(np.full(d, np.nan, compute.numpy) for d in kernel.scratch_dims())
    action = CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,), scratch))
    assert isinstance(action, NativeAction) == native
    whole = out if out.base is None else out.base
    before = whole.copy()
    for _ in range(2):
        out[...] = 77
        action()
        np.testing.assert_array_equal(out, want)
    if hows[2] == "part":
        outside = np.ones(whole.shape, np.bool_)
        outside[..., 1:-1, 1:-2] = False
        np.testing.assert_array_equal(whole[outside], before[outside])


SIZES = [(4, 5, 6), (1, 5, 6), (4, 5, 1), (4, 1, 6), (1, 1, 1), (1, 5, 1), (33, 40, 17)]


@pytest.mark.parametrize("hows", list(itertools.product(["rows", "columns", "part"], repeat=3)))
def test_however_matrices_lie(hows: tuple[str, str, str]) -> None:
    for dims in SIZES:
        check(dims, hows)
    check((4, 5, 6), hows, (P.F64,) * 3, P.F64)


@pytest.mark.parametrize("hows", list(itertools.product(["rows", "columns", "part"], repeat=3)))
@pytest.mark.parametrize("kind", [P.C64, P.C128])
def test_complex_matrices(kind: PrimitiveType, hows: tuple[str, str, str]) -> None:
    for dims in (*SIZES, (5, 1000, 530)):
        check(dims, hows, (kind,) * 3, kind)
    check((33, 20, 5), hows, (kind,) * 3, kind, batch=(2, 3))


@pytest.mark.parametrize("batch", [(1,), (7,), (2, 3), (3, 1, 2)])
@pytest.mark.parametrize("dims", [(4, 5, 6), (1, 5, 6), (4, 5, 1)])
def test_batches(batch: tuple[int, ...], dims: tuple[int, int, int]) -> None:
    for hows in (("rows",) * 3, ("columns", "part", "rows"), ("part", "columns", "part")):
        check(dims, hows, batch=batch)


def test_a_batch_may_repeat_one_matrix_and_lie_in_any_order() -> None:
    kernel = DotKernel((2, 3), 4, 5, 6, P.F32, P.F32, P.F32, P.F32)
    lhs = matrix((3, 2, 4, 5), P.F32, "rows").transpose(1, 0, 2, 3)
    rhs = np.broadcast_to(matrix((3, 5, 6), P.F32, "rows"), (2, 3, 5, 6))
    out = np.zeros((2, 3, 4, 6), np.float32)
    action = CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,)))
    assert isinstance(action, NativeAction)
    action()
    np.testing.assert_array_equal(out, np.matmul(lhs, rhs))


@pytest.mark.parametrize(
    ("types", "compute"),
    [
        ((P.BF16, P.BF16, P.BF16), P.F32),
        ((P.BF16, P.F32, P.F32), P.F32),
        ((P.F32, P.F16, P.F32), P.F32),
        ((P.F32, P.F32, P.BF16), P.F32),
        ((P.S8, P.S8, P.S32), P.F32),
        ((P.S8, P.S8, P.S32), P.F64),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_conversions_go_by_blocks_of_rows(
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType],
    compute: PrimitiveType,
    batch: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.program.records.dot._BLOCK_ELEMENTS", 64)
    for dims in ((13, 20, 6), (9, 20, 6), (1, 20, 6), (2, 20, 1)):
        check(dims, ("rows", "columns", "rows"), types, compute, batch)
        check(dims, ("columns", "rows", "part"), types, compute, batch)


def test_other_strides_are_numpys() -> None:
    x = np.ones((4, 10), np.float32)[:, ::2]
    assert blas_product(P.F32, x, np.ones((5, 3), np.float32), np.ones((4, 3), np.float32)) is None


def test_nothing_to_sum_is_zero() -> None:
    check((3, 0, 4), ("rows", "rows", "rows"))
    check((0, 3, 4), ("rows", "rows", "rows"))
    check((3, 0, 4), ("rows", "rows", "rows"), (P.BF16,) * 3, P.F32, batch=(2,))


@pytest.mark.parametrize(
    "types",
    [
        (P.S32, P.S32, P.S32),
        (P.U64, P.U64, P.U64),
        (P.S8, P.S8, P.S8),
        (P.U8, P.S16, P.S32),
        (P.S32, P.S32, P.S64),
        (P.S64, P.U32, P.U16),
    ],
    ids=str,
)
def test_integers_are_summed_modulo_their_range(
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType],
) -> None:
    """Numbers from all of the range, so that sums go far beyond it."""
    rng = np.random.default_rng(0)
    hows = itertools.product(["rows", "columns", "part"], repeat=3)
    for (m, k, n), how in zip(
        itertools.cycle([(5, 7, 20), (3, 9, 4), (300, 6, 2)]), hows, strict=False
    ):
        lhs, rhs, out = (
            matrix(shape, kind, h)
            for shape, kind, h in zip(((2, m, k), (2, k, n), (2, m, n)), types, how, strict=True)
        )
        for x in (lhs, rhs):
            info = np.iinfo(x.dtype)
            x[...] = rng.integers(info.min, info.max, x.shape, x.dtype, endpoint=True)
        kernel = DotKernel((2,), m, k, n, *types, types[2])
        action = CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,)))
        assert isinstance(action, NativeAction)
        action()
        wide = types[2].numpy
        want = np.einsum("bmk,bkn->bmn", lhs.astype(wide), rhs.astype(wide))
        np.testing.assert_array_equal(out, want)


def test_columns_beyond_one_block() -> None:
    lhs, rhs = matrix((3, 9), P.S64, "rows"), matrix((9, 700), P.S64, "rows")
    out = np.zeros((3, 700), np.int64)
    kernel = DotKernel((), 3, 9, 700, P.S64, P.S64, P.S64, P.S64)
    CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,)))()
    np.testing.assert_array_equal(out, lhs @ rhs)


@pytest.mark.parametrize("kind", [P.F32, P.F64])
@pytest.mark.parametrize(
    "registers", [VectorRegisters(64, 28), VectorRegisters(32, 15)], ids=["wide", "narrow"]
)
def test_small_products_of_every_rest(
    kind: PrimitiveType, registers: VectorRegisters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and columns that fill blocks, that do not, and fewer than a block's; nothing beside them is touched."""
    monkeypatch.setattr("runtime.cpu.kernels.gemm.native_dot.host_registers", lambda: registers)
    register_block.cache_clear()
    for m, n in itertools.product([2, 3, 8, 13, 33], [2, 3, 7, 8, 16, 31, 65, 100]):
        hows = (("rows", "columns", "part")[m % 3], "part" if n % 2 else "rows", "part")
        check((m, 1 + m * n % 5, n), hows, (kind,) * 3, kind)
    register_block.cache_clear()


def test_a_small_products_sums_do_not_depend_on_their_block() -> None:
    """The same bits for rows and columns of their own as within a larger product."""
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.standard_normal(s).astype(np.float32) for s in ((30, 50), (50, 90)))

    def product(rows: slice, columns: slice) -> Array:
        a, b = lhs[rows], rhs[:, columns]
        out = np.zeros((len(a), b.shape[1]), np.float32)
        made = blas_product(P.F32, a, b, out)
        assert made is not None
        NativeAction(made.calls)()
        return out

    whole = product(slice(None), slice(None))
    for rows, columns in ((slice(3, 8), slice(None)), (slice(11, 30), slice(4, 23))):
        assert product(rows, columns).tobytes() == whole[rows, columns].tobytes()


@pytest.mark.parametrize("dims", [(32, 64, 8), (100, 100, 100), (20, 500, 20)])
def test_no_blas_where_it_would_call_malloc(
    dims: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenBLAS packs a rest of at most half a vector of columns, of products of up to a million multiplications."""
    monkeypatch.setattr("runtime.cpu.kernels.gemm.native_dot.gemm_function", lambda *_: None)
    check(dims, ("rows", "rows", "rows"))
    check(dims, ("columns", "rows", "rows"))


@pytest.mark.parametrize("dims", [(5, 1000, 530), (8, 600, 400), (32, 513, 64)])
def test_no_blas_for_few_rows(dims: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """BLAS would pack the right matrix, or the left one where the result lies by column."""
    monkeypatch.setattr("runtime.cpu.kernels.gemm.native_dot.gemm_function", lambda *_: None)
    monkeypatch.setattr("runtime.cpu.kernels.gemm.native_dot.has_tile_unit", lambda: False)
    for left in ("rows", "columns"):
        check(dims, (left, "rows", "part"))
        check(dims[::-1], ("columns", left, "columns"))
    check(dims, ("rows", "rows", "rows"), (P.F64,) * 3, P.F64)


@pytest.mark.parametrize("dims", [(32, 64, 64), (40, 7, 33), (33, 20, 5), (64, 64, 65)])
def test_small_right_matrices_by_column_are_turned(dims: tuple[int, int, int]) -> None:
    """The left matrices are transposed, too, where the result lies by column."""
    for batch in ((), (5,), (2, 3)):
        check(dims, ("rows", "columns", "rows"), batch=batch)
        check(dims[::-1], ("rows", "columns", "columns"), batch=batch)
    check(dims, ("part", "columns", "part"), (P.F64,) * 3, P.F64)


@pytest.mark.parametrize(
    ("rows", "kind"), [*((rows, P.F32) for rows in (2, 3, 8, 9, 16, 17)), (9, P.F64)]
)
def test_few_rows_of_a_large_matrix(
    rows: int, kind: PrimitiveType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns and depths with a rest; those that are too deep for sums in registers."""
    monkeypatch.setattr(tuning, "THIN_LEAST_BYTES", 0)
    types = (kind,) * 3
    for depth, columns in ((7, 1100), (64, 48), (2050, 530)):
        for hows in itertools.product(
            ["rows", "part"], ["rows", "columns", "part"], ["rows", "columns", "part"]
        ):
            check((rows, depth, columns), hows, types, kind)
            check((columns, depth, rows), hows, types, kind)
        check((rows, depth, columns), ("rows", "columns", "part"), types, kind, batch=(2, 3))
        check((columns, depth, rows), ("rows", "columns", "part"), types, kind, batch=(2, 3))
