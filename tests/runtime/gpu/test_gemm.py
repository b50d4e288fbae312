"""Arguments of cuBLAS for matrices that lie this way and that, read as cuBLAS reads them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from runtime.executable import Executable
from runtime.gpu.codegen.launch import ArgumentKind
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries.call import KernelCall
from runtime.gpu.libraries.gemm import GemmCall, gemm_calls
from runtime.gpu.libraries.library_emitters import library_work
from runtime.gpu.libraries.sequence import CallStage, KernelStage, library_sequence
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.report import KernelReport
from runtime.gpu.views import DeviceView
from runtime.gpu.work import GemmWork, KernelArraysOnDevice, Work
from runtime.program.kernel import Kernel
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.evaluator.evaluator import evaluate
from spmd.shape import PrimitiveType
from tests.runtime.gpu.doubles.engines import devices_of
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.doubles.host_streams import HostStream
from tests.runtime.programs import compiled, random_inputs

F32 = PrimitiveType.F32
#: Where dimensions (batch..., rows, columns) lie, slowest first.
ORDERS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1)]


def kernel_of(
    batch: tuple[int, ...], m: int, k: int, n: int, kind: PrimitiveType, out: PrimitiveType
) -> DotKernel:
    return DotKernel(batch, m, k, n, kind, kind, out, F32)


def placed(
    driver: HostDriver,
    dims: tuple[int, ...],
    kind: PrimitiveType,
    order: tuple[int, ...],
    gap: int = 3,
) -> DeviceView:
    """An array of the device, its dimensions in this order, with a gap of elements behind every row."""
    sizes = [dims[d] for d in order]
    sizes[-1] += gap
    strides = [0] * len(dims)
    step = kind.byte_size
    for d, size in zip(reversed(order), reversed(sizes), strict=True):
        strides[d] = step
        step *= size
    block = driver.allocate(step)
    return DeviceView(block.address, StridedView(kind, dims, tuple(strides)))


@pytest.mark.parametrize(("left", "right", "out"), list(itertools.product(ORDERS, ORDERS, ORDERS)))
def test_orders(left: tuple[int, ...], right: tuple[int, ...], out: tuple[int, ...]) -> None:
    _check(kernel_of((4,), 5, 6, 7, F32, F32), left, right, out)


@pytest.mark.parametrize(("m", "k", "n"), list(itertools.product((1, 3), (1, 4), (1, 5))))
@pytest.mark.parametrize("out", [(0, 1, 2), (0, 2, 1)])
def test_thin(m: int, k: int, n: int, out: tuple[int, ...]) -> None:
    for left, right in itertools.product(ORDERS[:2], ORDERS[:2]):
        _check(kernel_of((2,), m, k, n, F32, F32), left, right, out)


@pytest.mark.parametrize(
    ("kind", "out"),
    [
        (PrimitiveType.BF16, PrimitiveType.BF16),
        (PrimitiveType.BF16, F32),
        (PrimitiveType.F16, F32),
        (PrimitiveType.F64, PrimitiveType.F64),
        (PrimitiveType.C64, PrimitiveType.C64),
    ],
)
def test_types(kind: PrimitiveType, out: PrimitiveType) -> None:
    _check(kernel_of((), 3, 4, 5, kind, out), (0, 1), (1, 0), (0, 1))


def test_several_batch_dimensions_are_as_few_calls_as_can_be() -> None:
    driver = HostDriver()
    dims = {"lhs": (2, 3, 4, 5), "rhs": (2, 3, 5, 6), "out": (2, 3, 4, 6)}
    together = {k: placed(driver, d, F32, (0, 1, 2, 3)).view for k, d in dims.items()}
    kernel = kernel_of((2, 3), 4, 5, 6, F32, F32)
    calls = gemm_calls(kernel, together["lhs"], together["rhs"], together["out"])
    assert calls is not None
    assert [call.count for call in calls] == [6]
    apart = together | {"rhs": placed(driver, dims["rhs"], F32, (1, 0, 2, 3)).view}
    calls = gemm_calls(kernel, apart["lhs"], apart["rhs"], apart["out"])
    assert calls is not None
    assert [call.count for call in calls] == [3, 3]
    _check(kernel, (0, 1, 2, 3), (1, 0, 2, 3), (0, 1, 2, 3))


def test_views_whose_batch_does_not_merge_are_one_call_by_pointers() -> None:
    """Attention's products of [batch, sequence, heads, depth]: each matrix has a gap behind its rows."""
    kernel = kernel_of((2, 3), 8, 4, 8, F32, F32)
    found = _check(kernel, (0, 2, 1, 3), (0, 2, 1, 3), (0, 1, 2, 3), gap=4)
    assert [len(call.offsets) for call in found.calls] == [6]
    assert found.calls[0].count == 6
    uneven = _check(kernel, (0, 2, 1, 3), (0, 2, 1, 3), (0, 1, 2, 3), gap=3)
    assert [call.offsets for call in uneven.calls] == [(), ()]  # cuBLAS wants aligned pointers


def test_what_cublas_does_not_take() -> None:
    view = StridedView(F32, (4, 4), (32, 8))  # neither rows nor columns without gaps
    dense = StridedView(F32, (4, 4), (16, 4))
    assert gemm_calls(kernel_of((), 4, 4, 4, F32, F32), view, dense, dense) is None
    repeated = StridedView(F32, (4, 4), (0, 4))
    assert gemm_calls(kernel_of((), 4, 4, 4, F32, F32), repeated, dense, dense) is None
    integers = kernel_of((), 4, 4, 4, PrimitiveType.S32, PrimitiveType.S32)
    assert gemm_calls(integers, dense, dense, dense) is None


MIXED = [
    (F32, PrimitiveType.BF16, F32),
    (PrimitiveType.BF16, F32, PrimitiveType.BF16),
    (F32, F32, PrimitiveType.BF16),
    (PrimitiveType.BF16, PrimitiveType.F16, F32),
    (PrimitiveType.F16, PrimitiveType.F16, PrimitiveType.BF16),
    (PrimitiveType.F8E4M3FN, PrimitiveType.F8E4M3FN, F32),
    (PrimitiveType.S8, PrimitiveType.S8, PrimitiveType.S32),
    (F32, PrimitiveType.F64, PrimitiveType.F64),
]


@pytest.mark.parametrize(("left", "right", "out"), MIXED)
def test_operands_are_converted(
    left: PrimitiveType, right: PrimitiveType, out: PrimitiveType
) -> None:
    names = [kind.value for kind in (left, right, out)]
    text = f"""HloModule mixed
ENTRY main {{
  x = {names[0]}[3,5,6] parameter(0)
  y = {names[1]}[3,7,6] parameter(1)
  ROOT z = {names[2]}[3,5,7] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
}}
"""
    executable = compiled(text)
    executable.engine = GpuEngine(lambda _: HostDriver(), launch_maker)
    (device,) = devices_of(executable).devices
    assert device.kernel_report == KernelReport(0, 1, ())
    inputs = random_inputs(executable.module)
    (got,), (want,) = executable.run(*inputs), evaluate(executable.module, *inputs)
    assert got.dtype == want.dtype
    tolerance = 1e-2 if out is PrimitiveType.BF16 else 1e-5
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
    )


PRODUCT = """HloModule product
ENTRY main {{
  x = {kind}[15,6] parameter(0)
  y = {kind}[6,7] parameter(1)
  ROOT z = {out}[15,7] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{asked}
}}
"""


def noted_calls(executable: Executable, options: GpuOptions = DEFAULT) -> list[GemmCall]:
    """Have ``executable`` run on a double; its calls of cuBLAS are in the list once it has run."""
    calls: list[GemmCall] = []

    class Noting(HostDriver):
        def load(self, work: Work) -> Callable[[HostStream], None]:
            if isinstance(work, GemmWork):
                calls.extend(work.calls)
            return super().load(work)

    executable.engine = GpuEngine(lambda _: Noting(), launch_maker, options)
    return calls


@pytest.mark.parametrize(
    ("kind", "out", "asked", "tf32"),
    [
        ("f32", "f32", "", True),
        ("f32", "f32", ", operand_precision={default,high}", True),
        ("f32", "f32", ", operand_precision={default,highest}", False),
        ("f32", "f32", ", algorithm=dot_f32_f32_f32", False),
        ("f32", "f32", ", algorithm=dot_tf32_tf32_f32", True),
        ("f64", "f64", "", False),
        ("c64", "c64", "", False),
        ("bf16", "f32", "", False),  # nothing to round
        ("f8e4m3fn", "f32", "", False),  # as bf16, which holds them
        ("s8", "s32", "", True),
        ("s16", "s32", "", False),
    ],
)
def test_operand_precision_is_honoured(kind: str, out: str, asked: str, tf32: bool) -> None:
    executable = compiled(PRODUCT.format(kind=kind, out=out, asked=asked))
    calls = noted_calls(executable)
    inputs = random_inputs(executable.module)
    (got,), (want,) = executable.run(*inputs), evaluate(executable.module, *inputs)
    assert {call.tf32 for call in calls} == ({tf32} if calls else set())
    assert calls or kind == "s16"  # whose sums are a kernel in PTX
    np.testing.assert_allclose(got.astype(complex), want.astype(complex), rtol=1e-5, atol=1e-5)


def test_no_product_is_rounded_where_the_options_say_so() -> None:
    executable = compiled(PRODUCT.format(kind="f32", out="f32", asked=""))
    calls = noted_calls(executable, GpuOptions(tf32=False))
    executable.run(*random_inputs(executable.module))
    assert [call.tf32 for call in calls] == [False]


def test_matrices_with_gaps_are_brought_together() -> None:
    gaps = StridedView(F32, (4, 4), (32, 8))
    dense = StridedView(F32, (4, 4), (16, 4))
    call, copied = in_sequence(kernel_of((), 4, 4, 4, F32, F32), (gaps, dense, dense))
    assert call == kernel_of((), 4, 4, 4, F32, F32)
    assert copied == [(ArgumentKind.OPERAND, 0)]


def in_sequence(
    kernel: DotKernel, views: tuple[StridedView, StridedView, StridedView], *, f8: bool = False
) -> tuple[Kernel, list[tuple[ArgumentKind, int]]]:
    """Return the product that is called, and which arrays of the program kernels read or write."""
    lhs, rhs, out = views
    made = launch_maker(HostDriver())
    found = library_sequence(kernel, (lhs, rhs), (out,), made, GpuOptions(f8=f8))
    assert found is not None
    (called,) = [stage.call for stage in found.stages if isinstance(stage, CallStage)]
    assert isinstance(called, KernelCall)
    copies = [stage for stage in found.stages if isinstance(stage, KernelStage)]
    places = [place for copy in copies for place in (*copy.operands, *copy.results)]
    own = [(p.kind, p.number) for p in places if p.kind is not ArgumentKind.WORKSPACE]
    return called.kernel, own


def test_products_in_8_bits_copy_what_does_not_lie_by_depth() -> None:
    kind = PrimitiveType.F8E4M3FN
    by_rows, by_columns = StridedView(kind, (32, 32), (32, 1)), StridedView(kind, (32, 32), (1, 32))
    out = StridedView(F32, (32, 32), (128, 4))
    kernel, lhs, rhs = (
        kernel_of((), 32, 32, 32, kind, F32),
        (ArgumentKind.OPERAND, 0),
        (ArgumentKind.OPERAND, 1),
    )
    for views, copied in (
        ((by_rows, by_columns), []),
        ((by_rows, by_rows), [rhs]),
        ((by_columns, by_columns), [lhs]),
        ((replace(by_rows, offset=8), by_columns), [lhs]),
    ):
        assert in_sequence(kernel, (*views, out), f8=True) == (kernel, copied)


@pytest.mark.parametrize("m", [32, 33])
def test_products_that_are_not_in_8_bits_are_converted(m: int) -> None:
    kind = PrimitiveType.F8E4M3FN
    views = StridedView(kind, (m, 32), (32, 1)), StridedView(kind, (32, 32), (1, 32))
    out = StridedView(F32, (m, 32), (128, 4))
    call, _ = in_sequence(kernel_of((), m, 32, 32, kind, F32), (*views, out), f8=m % 16 != 0)
    assert isinstance(call, DotKernel)
    assert call.lhs is call.rhs is PrimitiveType.BF16


def _check(
    kernel: DotKernel,
    left: tuple[int, ...],
    right: tuple[int, ...],
    out: tuple[int, ...],
    gap: int = 3,
) -> GemmWork:
    driver, rng = HostDriver(), np.random.default_rng(0)
    lhs = placed(driver, (*kernel.batch, kernel.m, kernel.k), kernel.lhs, left, gap)
    rhs = placed(driver, (*kernel.batch, kernel.k, kernel.n), kernel.rhs, right, gap)
    result = placed(driver, (*kernel.batch, kernel.m, kernel.n), kernel.result, out, gap)
    for view in (lhs, rhs):
        array = driver.array(view)
        array[...] = rng.standard_normal(array.shape).astype(array.dtype)
    work = library_work(kernel, KernelArraysOnDevice((lhs, rhs), (result,)))
    assert isinstance(work, GemmWork)
    stream = driver.stream()
    driver.load(work)(stream)
    stream.synchronize()
    wide = np.complex128 if kernel.lhs is PrimitiveType.C64 else np.float64
    want = np.matmul(driver.array(lhs).astype(wide), driver.array(rhs).astype(wide))
    got = driver.array(result)
    tolerance = 1e-2 if got.dtype == ml_dtypes.bfloat16 else 1e-5
    np.testing.assert_allclose(got.astype(wide), want, rtol=tolerance, atol=tolerance)
    return work
