"""The driver does what the engine takes it to do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from runtime.gpu.driver import GpuDriver
from runtime.gpu.errors import GpuMemoryError
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries.library_emitters import library_work
from runtime.gpu.libraries.tuning import Tuning
from runtime.gpu.transfers.staging import Staging
from runtime.gpu.views import DeviceView
from runtime.gpu.work import CopyWork, GemmWork, KernelArraysOnDevice, KernelWork, Work
from runtime.program.kernel import Kernel
from runtime.program.records.copy import CopyKernel
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.shape import PrimitiveType

F32 = PrimitiveType.F32


class Arrays:
    """Arrays on the device and the same on the host."""

    def __init__(self, driver: GpuDriver) -> None:
        self.driver, self.stream = driver, driver.stream()
        self._staging = Staging(driver, self.stream)
        self._kept: list[object] = []

    def make(
        self, dims: Sequence[int], kind: PrimitiveType, order: Sequence[int], gap: int = 0
    ) -> tuple[DeviceView, np.ndarray]:
        """Random values, ``dims`` in this order of memory, slowest first, with a gap behind every row."""
        strides, step = [0] * len(dims), kind.byte_size
        for number, d in enumerate(reversed(order)):
            strides[d] = step
            step *= dims[d] + (gap if number == 0 else 0)
        memory = np.zeros(step, np.uint8)
        host = np.ndarray(tuple(dims), kind.numpy, memory, 0, tuple(strides))
        host[...] = np.random.default_rng(step).standard_normal(tuple(dims)).astype(kind.numpy)
        block = self.driver.allocate(step)
        self._staging.send(block.address, memory)
        self._kept.append(block)
        return DeviceView(block.address, StridedView(kind, tuple(dims), tuple(strides))), host

    def run(self, work: Work) -> None:
        self.driver.load(work)(self.stream)
        self.stream.synchronize()

    def read(self, view: DeviceView) -> np.ndarray:
        span = view.span
        memory = self._staging.fetch(span.start, (span.size,), np.dtype(np.uint8))
        shape = view.view
        return np.ndarray(
            shape.dims, shape.element_type.numpy, memory, view.first - span.start, shape.strides
        )


@pytest.fixture
def arrays(driver: GpuDriver) -> Arrays:
    return Arrays(driver)


def test_there_and_back(arrays: Arrays) -> None:
    view, host = arrays.make((1000, 999), F32, (0, 1))
    np.testing.assert_array_equal(arrays.read(view), host)


def test_more_than_the_staging_holds(driver: GpuDriver) -> None:
    staging = Staging(driver, driver.stream(), 4096)
    data = np.arange(10_000, dtype=np.int32)
    block = driver.allocate(data.nbytes)
    staging.send(block.address, data)
    np.testing.assert_array_equal(staging.fetch(block.address, data.shape, data.dtype), data)


def test_memory_is_zeros_at_first(driver: GpuDriver) -> None:
    staging = Staging(driver, driver.stream())
    block = driver.allocate(1 << 20)
    assert block.address % 256 == 0
    assert not staging.fetch(block.address, (1 << 20,), np.dtype(np.uint8)).any()


def test_more_than_there_is(driver: GpuDriver) -> None:
    with pytest.raises(GpuMemoryError, match="1,125,899,906,842,624 bytes of"):
        driver.allocate(1 << 50)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize(
    "kind", [PrimitiveType.PRED, PrimitiveType.BF16, F32, PrimitiveType.F64, PrimitiveType.C128]
)
def test_strided_copies(arrays: Arrays, kind: PrimitiveType, order: tuple[int, ...]) -> None:
    source, host = arrays.make((5, 6, 7), kind, order, gap=1)
    target, _ = arrays.make((5, 6, 7), kind, (0, 1, 2))
    arrays.run(CopyWork(source, target))
    np.testing.assert_array_equal(arrays.read(target), host)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_copies_in_ptx(arrays: Arrays, driver: GpuDriver, order: tuple[int, ...]) -> None:
    source, host = arrays.make((40, 50, 60), F32, order)
    target, _ = arrays.make((40, 50, 60), F32, (0, 1, 2))
    _run_ptx(arrays, driver, CopyKernel(), KernelArraysOnDevice((source,), (target,)))
    np.testing.assert_array_equal(arrays.read(target), host)


def _run_ptx(arrays: Arrays, driver: GpuDriver, kernel: Kernel, on: KernelArraysOnDevice) -> None:
    views = [tuple(v.view for v in own) for own in (on.operands, on.results, on.scratch)]
    launches = launch_maker(driver)(kernel, *views)
    if launches is None:
        pytest.skip(f"{type(kernel).__name__} has no form in PTX")
    arrays.run(KernelWork(kernel, launches, on))


ORDERS = [(0, 1, 2), (0, 2, 1), (1, 0, 2)]


@pytest.mark.parametrize(("left", "right", "out"), list(itertools.product(ORDERS, ORDERS, ORDERS)))
def test_products(
    arrays: Arrays, left: tuple[int, ...], right: tuple[int, ...], out: tuple[int, ...]
) -> None:
    _check_product(arrays, F32, F32, (left, right, out), 1e-4)


@pytest.mark.parametrize(
    ("kind", "result", "tolerance"),
    [
        (PrimitiveType.BF16, PrimitiveType.BF16, 2e-2),
        (PrimitiveType.BF16, F32, 1e-4),
        (PrimitiveType.F16, PrimitiveType.F16, 2e-3),
        (PrimitiveType.F16, F32, 1e-4),
        (PrimitiveType.F64, PrimitiveType.F64, 1e-12),
        (PrimitiveType.C64, PrimitiveType.C64, 1e-4),
        (PrimitiveType.C128, PrimitiveType.C128, 1e-12),
    ],
)
def test_types_of_products(
    arrays: Arrays, kind: PrimitiveType, result: PrimitiveType, tolerance: float
) -> None:
    _check_product(arrays, kind, result, ((0, 1, 2), (0, 2, 1), (0, 1, 2)), tolerance)


@pytest.mark.parametrize("kind", [PrimitiveType.BF16, F32, PrimitiveType.F64])
def test_products_by_pointers(arrays: Arrays, kind: PrimitiveType) -> None:
    """Heads between sequence and depth, as attention has them: no step leads from matrix to matrix."""
    sums = kind if kind is PrimitiveType.F64 else F32
    kernel = DotKernel((2, 3), 32, 64, 16, kind, kind, kind, sums)
    lhs, x = arrays.make((2, 3, 32, 64), kind, (0, 2, 1, 3))
    rhs, y = arrays.make((2, 3, 64, 16), kind, (0, 2, 1, 3))
    out, _ = arrays.make((2, 3, 32, 16), kind, (0, 1, 2, 3))
    work = library_work(kernel, KernelArraysOnDevice((lhs, rhs), (out,)))
    assert isinstance(work, GemmWork)
    assert [call.count for call in work.calls] == [6]
    assert work.calls[0].offsets
    arrays.run(work)
    want = np.matmul(x.astype(np.float64), y.astype(np.float64))
    tolerance = 2e-2 if kind is PrimitiveType.BF16 else 1e-4
    got = arrays.read(out).astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 8)


def test_products_by_measured_algorithms(
    is_double: bool, driver: GpuDriver, tmp_path: Path
) -> None:
    """Large enough to be measured; the second driver takes the choices of the first from the file."""
    if is_double:
        pytest.skip("a double measures nothing")
    from runtime.gpu.cuda.driver import CudaDriver

    file, found = tmp_path / "tuning.json", []
    for measures in (True, False):
        arrays = Arrays(CudaDriver(0, Tuning(file, measures=measures)))
        for kind, orders in ((PrimitiveType.BF16, ((0, 1, 2),) * 3), (F32, ((0, 2, 1),) * 3)):
            kernel = DotKernel((2,), 768, 512, 1280, kind, kind, kind, F32)
            lhs, x = arrays.make((2, 768, 512), kind, orders[0])
            rhs, y = arrays.make((2, 512, 1280), kind, orders[1])
            out, _ = arrays.make((2, 768, 1280), kind, orders[2])
            work = library_work(kernel, KernelArraysOnDevice((lhs, rhs), (out,)))
            assert work is not None
            arrays.run(work)
            got = arrays.read(out).astype(np.float64)
            want = np.matmul(x.astype(np.float64), y.astype(np.float64))
            tolerance = 1e-2 if kind is PrimitiveType.BF16 else 1e-4
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 30)
            found.append(got)
    assert len(json.loads(file.read_text())) == 2
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[3])


def test_products_in_tf32(arrays: Arrays) -> None:
    """Operands keep 10 bits of their mantissas."""
    _check_product(arrays, F32, F32, ((0, 1, 2),) * 3, 3e-3, tf32=True)


def _check_product(
    arrays: Arrays,
    kind: PrimitiveType,
    result: PrimitiveType,
    orders: tuple[tuple[int, ...], ...],
    tolerance: float,
    *,
    tf32: bool = False,
) -> None:
    kernel = DotKernel((3,), 32, 48, 16, kind, kind, result, F32, tf32=tf32)
    lhs, x = arrays.make((3, 32, 48), kind, orders[0])
    rhs, y = arrays.make((3, 48, 16), kind, orders[1])
    out, _ = arrays.make((3, 32, 16), result, orders[2])
    work = library_work(kernel, KernelArraysOnDevice((lhs, rhs), (out,)))
    assert work is not None
    arrays.run(work)
    wide = np.complex128 if np.dtype(x.dtype).kind == "c" else np.float64
    want = np.matmul(x.astype(wide), y.astype(wide))
    got = arrays.read(out).astype(wide)
    print(f"{kernel}: largest error {np.abs(got - want).max():.2e} of {np.abs(want).max():.2f}")
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 8)


def test_events_order_streams_and_tell_time(driver: GpuDriver, is_double: bool) -> None:
    size = (1 if is_double else 256) << 20
    one, other = driver.allocate(size), driver.allocate(size)
    first, second = driver.stream(), driver.stream(urgent=True)
    begin, end = driver.event(timed=True), driver.event(timed=True)
    first.record(begin)
    for _ in range(20):
        driver.copy(other.address, one.address, size, first)
    first.record(end)
    second.wait_event(end)
    behind = driver.event(timed=True)
    second.record(behind)
    behind.synchronize()
    took = driver.nanoseconds(begin, end)
    assert is_double or took > 20 * size / 10e12 * 1e9  # no GPU moves 10 TB/s
    assert driver.nanoseconds(begin, behind) >= took


def test_graphs(driver: GpuDriver, arrays: Arrays) -> None:
    source, host = arrays.make((1000,), F32, (0,))
    target, _ = arrays.make((1000,), F32, (0,))
    stream = arrays.stream
    enqueue = driver.load(CopyWork(source, target))
    before = arrays.read(target).copy()
    stream.begin_capture()
    enqueue(stream)
    graph = stream.end_capture()
    graph.upload(stream)
    stream.synchronize()
    np.testing.assert_array_equal(arrays.read(target), before)
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(arrays.read(target), host)
