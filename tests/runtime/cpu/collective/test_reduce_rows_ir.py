"""Native reductions have the bits of ``reduce_in_order``, for every type and kind."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from collectives.communicator.actions.engine import RunStatus
from collectives.communicator.actions.shared_actions import CollectiveProgram, ReduceRows
from collectives.communicator.group import accumulator_type, can_reduce, reduce_in_order
from runtime.codegen.vectorizer.loops import vectorized
from runtime.codegen.vectorizer.target import AVX2, AVX512
from runtime.cpu.collective.action_records import MOST_AT_ONCE, Prefixes, Streams
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.cpu.collective.reduce_rows_ir import BLOCK_ELEMENTS, reduce_rows_ir
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType

BF16 = ml_dtypes.bfloat16
PAIRS = [
    (kind, reduction)
    for kind, reduction in itertools.product(PrimitiveType, ReductionKind)
    if can_reduce(kind.numpy, reduction)
]


def values(kind: PrimitiveType, size: int, seed: int) -> np.ndarray:
    """Every bit pattern of small types, nan and infinities among the floats."""
    rng = np.random.default_rng(seed)
    dtype = kind.numpy
    if kind is PrimitiveType.PRED:
        return rng.random(size) < 0.5
    if kind.bits <= 8:
        return rng.integers(0, 1 << kind.bits, size).astype(np.uint8).view(dtype)
    if kind.is_integer:
        return np.frombuffer(rng.bytes(size * dtype.itemsize), dtype).copy()
    array = rng.standard_normal(size) * 10.0 ** rng.integers(-4, 4, size)
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0])
    chosen = rng.random(size) < 0.1
    array[chosen] = rng.choice(special, int(chosen.sum()))
    if kind.is_complex:
        return (
            np.stack([array, rng.permutation(array)], axis=-1)
            .reshape(-1)
            .view(np.complex128)
            .astype(dtype)
        )
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    """Bit for bit; which of two nans comes out of a sum NumPy itself does not say."""
    if got.dtype.kind == "c":
        got, want = (one.view(one.real.dtype) for one in (got, want))
    if not PrimitiveType.from_numpy(got.dtype).is_floating:
        assert got.tobytes() == want.tobytes()
        return
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got), nan)
    assert got[~nan].tobytes() == want[~nan].tobytes()


def reduce_natively(
    sources: list[np.ndarray], targets: list[np.ndarray], reduction: ReductionKind
) -> None:
    dtype = sources[1].dtype
    action = ReduceRows(
        reduction,
        dtype,
        tuple(s.ctypes.data for s in sources),
        tuple(t.ctypes.data for t in targets),
        1,
        sources[0].size,
        0,
        0,
        from_prefix=sources[0].dtype != dtype,
        to_prefix=targets[0].dtype != dtype,
    )
    (actions,) = native_collective_engine().load([CollectiveProgram((action,), (action,), 0)])
    assert actions.start() == RunStatus.COMPLETE


@pytest.mark.parametrize(("kind", "reduction"), PAIRS, ids=lambda value: value.value)
def test_bits_are_those_of_numpy(kind: PrimitiveType, reduction: ReductionKind) -> None:
    for count, size in [(3, 301), (MOST_AT_ONCE + 3, BLOCK_ELEMENTS + 5)]:
        sources = [values(kind, size, seed) for seed in range(count)]
        want, first, second = (np.empty_like(sources[0]) for _ in range(3))
        reduce_in_order(sources, reduction, want)
        reduce_natively(sources, [first, second], reduction)
        assert_same(first, want)
        assert_same(second, want)


@pytest.mark.parametrize("count", [2, 5, MOST_AT_ONCE + 1, MOST_AT_ONCE + 3])
@pytest.mark.parametrize(
    "kind", [PrimitiveType.BF16, PrimitiveType.F16, PrimitiveType.F8E4M3FN, PrimitiveType.S4]
)
def test_prefixes_go_on_where_they_were(kind: PrimitiveType, count: int) -> None:
    """A prefix in the accumulator's type, from some and to the others, has the bits of all at once."""
    size = BLOCK_ELEMENTS + 5
    sources = [values(kind, size, seed) for seed in range(2 * count - 1)]
    prefix = np.empty(size, accumulator_type(kind.numpy))
    further = np.empty_like(prefix)
    want, got = np.empty_like(sources[0]), np.empty_like(sources[0])
    reduce_in_order(sources, ReductionKind.SUM, want)
    reduce_natively(sources[:count], [prefix], ReductionKind.SUM)
    reduce_natively([prefix, *sources[count:]], [got], ReductionKind.SUM)
    assert_same(got, want)
    reduce_natively([prefix, *sources[count:]], [further], ReductionKind.SUM)
    reduce_in_order([prefix, *sources[count:]], ReductionKind.SUM, prefix)
    assert_same(further, prefix)


@pytest.mark.parametrize("count", [2, 4, MOST_AT_ONCE, MOST_AT_ONCE + 1])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_targets_may_be_the_sources(count: int, dtype: type) -> None:
    size = 2 * BLOCK_ELEMENTS + 3
    rng = np.random.default_rng(0)
    sources = [rng.standard_normal(size).astype(dtype) for _ in range(count)]
    want = np.empty_like(sources[0])
    reduce_in_order(sources, ReductionKind.SUM, want)
    reduce_natively(sources, sources[::-1], ReductionKind.SUM)
    assert all(one.tobytes() == want.tobytes() for one in sources)


def test_a_complex_product_has_no_kernel() -> None:
    assert not can_reduce(np.dtype(np.complex64), ReductionKind.PRODUCT)


@pytest.mark.parametrize(("dtype", "columns"), [(np.int32, 3), (BF16, 3), (BF16, 2), (BF16, 1)])
def test_rows_are_taken_by_their_strides(dtype: type, columns: int) -> None:
    """Columns from 3 on of two 3x7 arrays into a dense array: bf16's rows begin within a word of two elements."""
    sources = [(np.arange(21).reshape(3, 7) * scale).astype(dtype) for scale in (1, 4)]
    target = np.full((3, columns), 5, dtype)
    size = target.itemsize
    action = ReduceRows(
        ReductionKind.SUM,
        target.dtype,
        tuple(s.ctypes.data + 3 * size for s in sources),
        (target.ctypes.data,),
        rows=3,
        row_elements=columns,
        source_stride=7 * size,
        target_stride=columns * size,
    )
    (actions,) = native_collective_engine().load([CollectiveProgram((action,), (action,), 0)])
    assert actions.start() == RunStatus.COMPLETE
    assert np.array_equal(target, (sources[0] + sources[1])[:, 3 : 3 + columns])


@pytest.mark.parametrize("streams", [Streams(2, 1), Streams(2, 2), None])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int8])
def test_every_reduction_is_vectorized(dtype: type, streams: Streams | None) -> None:
    """Scalar code takes five times as long for bf16."""
    ir = reduce_rows_ir("reduce", np.dtype(dtype), ReductionKind.SUM, streams, Prefixes())
    for target in (AVX2, AVX512):
        written = vectorized(ir, target)
        assert written is not None
        assert "\nvector" not in written
