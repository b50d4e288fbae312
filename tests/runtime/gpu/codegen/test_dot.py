"""Products in PTX, of integers and of few elements, beside the processor's, which are exact for these inputs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from runtime.gpu.codegen import dot
from runtime.gpu.codegen.emitters import GpuArrays, sources
from runtime.gpu.codegen.launch import GpuTarget
from runtime.program.kernel import KernelArrays
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.gpu.codegen.assembler import accepted, needs_assembler
from tests.runtime.gpu.codegen.both_ways import both_ways, compare
from tests.runtime.gpu.codegen.emulator import needs_contexts
from tests.runtime.programs.build import compiled

pytestmark = needs_contexts

F32, S32 = PrimitiveType.F32, PrimitiveType.S32


def kernel(lhs: Any, rhs: Any, out: Any, compute: PrimitiveType) -> DotKernel:
    kinds = [PrimitiveType.from_numpy(x.dtype) for x in (lhs, rhs, out)]
    *batch, m, n = out.shape
    return DotKernel(tuple(batch), m, lhs.shape[-1], n, *kinds, compute)


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    values = np.random.default_rng(sum(shape)).integers(-4, 5, shape)
    return (abs(values) if np.dtype(dtype).kind == "u" else values).astype(dtype)


def check(lhs: Any, rhs: Any, out: Any, compute: PrimitiveType) -> None:
    one = kernel(lhs, rhs, out, compute)
    scratch = tuple(np.zeros(dims, compute.numpy) for dims in one.scratch_dims())
    compare(one, KernelArrays((lhs, rhs), (out,), scratch))


#: The last two have squares of elements for each thread, some of which are beyond the end.
SIZES = [(1, 1, 1), (3, 2, 5), (7, 9, 33), (4, 0, 3), (35, 16, 18), (66, 3, 65)]


@pytest.fixture(autouse=True)
def _few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot, "THREADS", 32)


@pytest.mark.parametrize(("m", "k", "n"), SIZES, ids=str)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64])
def test_integers(dtype: Any, m: int, k: int, n: int) -> None:
    compute = max(PrimitiveType.from_numpy(np.dtype(dtype)), S32, key=lambda one: one.bits)
    out = np.zeros((m, n), compute.numpy)
    check(numbers((m, k), dtype), numbers((k, n), dtype), out, compute)


def test_sums_wrap_around() -> None:
    big = np.full((40, 30), 2**31 - 5, np.int32)
    check(big, big.T, np.zeros((40, 40), np.int32), S32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, ml_dtypes.bfloat16])
def test_few_elements(dtype: Any) -> None:
    """Such as a gradient of a last layer, for which a library's call would take longer."""
    kind = PrimitiveType.from_numpy(np.dtype(dtype))
    compute = F32 if kind.bits < 32 else kind
    out = np.zeros((9, 4), dtype)
    check(numbers((9, 5), dtype), numbers((5, 4), dtype), out, compute)


def test_from_any_strides_to_any_others() -> None:
    lhs = numbers((6, 50, 2, 40), np.int32)
    rhs = numbers((40, 4, 31), np.int32)
    out = np.zeros((4, 35, 6, 52), np.int32)
    operands = lhs[::2, :, 1].transpose(1, 0, 2)[None, ::-1, 1], rhs[::-1, 2, ::3][None]
    check(*operands, out[1:2, 3:14, 4, 1:51].swapaxes(1, 2), S32)
    check(*operands, np.zeros((1, 50, 11), np.int32), S32)


def test_batches() -> None:
    lhs, rhs = numbers((3, 2, 30, 4), np.int16), numbers((2, 4, 21), np.int16)
    out = np.zeros((3, 2, 30, 21), np.int32)
    check(lhs, np.broadcast_to(rhs, (3, 2, 4, 21)), out, S32)


def test_what_a_library_multiplies_is_left_to_it() -> None:
    def emitted(m: int, k: int, n: int, kind: PrimitiveType) -> object:
        views = [StridedView.dense(ArrayShape(kind, dims)) for dims in ((m, k), (k, n), (m, n))]
        one = DotKernel((), m, k, n, kind, kind, kind, kind)
        return sources(one, GpuArrays(tuple(views[:2]), (views[2],), (), GpuTarget()))

    assert emitted(10, 5, 10, F32) is None
    assert emitted(9, 5, 10, F32) is not None
    assert emitted(512, 512, 512, S32) is not None
    assert emitted(0, 5, 10, S32) == ()


def test_programs_with_products_of_integers() -> None:
    text = """HloModule integers
    ENTRY main {
      a = s32[33,70] parameter(0)
      b = s32[70,12] parameter(1)
      ROOT c = s32[33,12] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }
    """
    with both_ways() as compared:
        compiled(text).run(numbers((33, 70), np.int32), numbers((70, 12), np.int32))
    assert compared.run["DotKernel"] == 1


@needs_assembler
@pytest.mark.parametrize("kind", [S32, PrimitiveType.S8, PrimitiveType.U64], ids=str)
def test_assembler_accepts_it(kind: PrimitiveType) -> None:
    compute = kind if kind.bits > 32 else S32
    views = [StridedView.dense(ArrayShape(t, (900, 900))) for t in (kind, kind, compute)]
    one = DotKernel((), 900, 900, 900, kind, kind, compute, compute)
    accepted(sources(one, GpuArrays(tuple(views[:2]), (views[2],), (), GpuTarget())), "sm_90")
