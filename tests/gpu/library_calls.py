"""Print which calls of cuSOLVER and cuBLAS a CUDA graph may contain, and how long they take, by call and size.

    python -m tests.gpu.library_calls [--double] [--kind f32]

Each call runs alone, is captured and launched, and must give the same both times. `host` is how long the host is in the
call while the GPU is still busy with other work for 5 ms: a call that is said to go on must take less. What is captured
here and is not marked so in runtime/gpu/libraries/linalg_work.py breaks graphs apart without need.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from runtime.gpu.driver import GpuBlock, GpuDriver
from runtime.gpu.libraries.linalg_work import (
    LibraryCall,
    SolverCall,
    SolverFunction,
    TriangularSolve,
)
from runtime.gpu.transfers.staging import Staging
from runtime.gpu.views import DeviceView
from runtime.program.strides import StridedView
from spmd.shape import COMPLEX_PARTS, ArrayShape, PrimitiveType

S32 = PrimitiveType.S32
ROUNDS = 7
LARGEST_ON_DOUBLE = 512
#: Copying so many bytes 20 times takes an H200 about 5 ms.
BYTES_BEFORE = 512 << 20
Dims = tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """A call on arrays of these types and dims, the first of which are matrices by columns."""

    call: LibraryCall
    arrays: tuple[tuple[PrimitiveType, Dims], ...]

    def __str__(self) -> str:
        call = self.call
        name = call.function.value if isinstance(call, SolverCall) else "trsm"
        return f"{name:7s} {' '.join('x'.join(map(str, dims)) for _, dims in self.arrays[:2])}"


def trials(kind: PrimitiveType) -> Iterator[Trial]:
    part, made = COMPLEX_PARTS.get(kind, kind), SolverFunction
    for count, n in ((1, 64), (1, 512), (1, 4096), (64, 32), (1000, 8), (16, 512), (4, 1100)):
        yield Trial(SolverCall(made.POTRF, "L"), ((kind, (count, n, n)), (S32, (count,))))
    for count, n, columns in ((1, 64, 8), (1, 4096, 256), (64, 32, 8), (1000, 8, 1), (8, 512, 64)):
        solve = TriangularSolve(left=False, lower=False, op="N", unit=False)
        yield Trial(solve, ((kind, (count, n, n)), (kind, (count, n, columns))))
    for count, n in ((1, 64), (1, 2048), (64, 32), (8, 256)):
        arrays = (kind, (count, n, n)), (S32, (count, n)), (S32, (count,))
        yield Trial(SolverCall(made.GETRF), arrays)
    for count, m, n in ((1, 64, 64), (1, 2048, 512), (64, 32, 16), (500, 8, 4), (8, 256, 64)):
        arrays = (kind, (count, n, m)), (kind, (count, n)), (S32, (count,))
        yield Trial(SolverCall(made.GEQRF), arrays)
        yield Trial(SolverCall(made.ORGQR), arrays)
    for count, n in ((1, 64), (1, 1024), (64, 32), (8, 128)):
        arrays = (kind, (count, n, n)), (part, (count, n)), (S32, (count,))
        yield Trial(SolverCall(made.SYEVD, "L"), arrays)
    for function, count, m, n in (
        (made.GESVD, 1, 60, 40),
        (made.GESVD, 1, 512, 256),
        (made.GESVD, 8, 64, 64),
        (made.GESVDJ, 64, 32, 16),
    ):
        arrays = (kind, (count, n, m)), (part, (count, n)), (kind, (count, m, m))
        yield Trial(SolverCall(function, "A"), (*arrays, (kind, (count, n, n)), (S32, (count,))))


class Run:
    """One trial on a driver of its own: a capture that fails may leave a library's handle unusable."""

    def __init__(self, driver: GpuDriver, trial: Trial) -> None:
        self.driver, self.stream = driver, driver.stream()
        self._staging = Staging(driver, self.stream)
        self._given: list[tuple[GpuBlock, GpuBlock, int]] = []
        self._views: list[DeviceView] = []
        for number, (kind, dims) in enumerate(trial.arrays):
            values = _factors(kind, dims) if number else _matrices(kind, dims, trial.call)
            self._add(values, kind, dims)
        self._call = driver.load(trial.call.on(tuple(self._views)))

    def _add(self, values: np.ndarray, kind: PrimitiveType, dims: Dims) -> None:
        given, used = (self.driver.allocate(values.nbytes) for _ in range(2))
        self._staging.send(given.address, values)
        self._given.append((given, used, values.nbytes))
        view = StridedView.dense(ArrayShape(kind, dims))
        self._views.append(DeviceView(used.address, view))

    def renew(self) -> None:
        for given, used, num_bytes in self._given:
            self.driver.copy(used.address, given.address, num_bytes, self.stream)

    def alone(self) -> float:
        """Return the microseconds of the call."""
        took = []
        for _ in range(ROUNDS):
            begin, end = (self.driver.event(timed=True) for _ in range(2))
            self.renew()
            self.stream.record(begin)
            self._call(self.stream)
            self.stream.record(end)
            self.stream.synchronize()
            took.append(self.driver.nanoseconds(begin, end))
        return statistics.median(took) / 1000

    def host(self, size: int) -> float:
        """Return the microseconds until the call returns to the host, behind 20 copies of ``size`` bytes."""
        one, other = self.driver.allocate(size), self.driver.allocate(size)
        self.renew()
        self.stream.synchronize()
        for _ in range(20):
            self.driver.copy(other.address, one.address, size, self.stream)
        begin = time.perf_counter()
        self._call(self.stream)
        took = time.perf_counter() - begin
        self.stream.synchronize()
        return 1e6 * took

    def results(self) -> list[np.ndarray]:
        return [
            self._staging.fetch(view.first, view.view.dims, view.view.element_type.numpy).copy()
            for view in self._views
        ]

    def in_a_graph(self) -> float:
        """Return the microseconds of a graph that contains the call. Raises what the capture raises."""
        self.renew()
        with self.driver.captures:
            self.stream.begin_capture()
            try:
                self._call(self.stream)
            finally:
                graph = self.stream.end_capture()
        graph.upload(self.stream)
        took = []
        for _ in range(ROUNDS):
            begin, end = (self.driver.event(timed=True) for _ in range(2))
            self.renew()
            self.stream.record(begin)
            graph.launch(self.stream)
            self.stream.record(end)
            self.stream.synchronize()
            took.append(self.driver.nanoseconds(begin, end))
        return statistics.median(took) / 1000


def _matrices(kind: PrimitiveType, dims: Dims, call: LibraryCall) -> np.ndarray:
    """Return random matrices: positive definite ones, short reflectors, or any that are not square."""
    values = np.random.default_rng(0).standard_normal(dims)
    if isinstance(call, SolverCall) and call.function is SolverFunction.ORGQR:
        values /= dims[-1]
    elif dims[-1] == dims[-2]:
        values = values + values.swapaxes(-1, -2) + 4 * dims[-1] ** 0.5 * np.eye(dims[-1])
    return np.ascontiguousarray(values.astype(kind.numpy))


def _factors(kind: PrimitiveType, dims: Dims) -> np.ndarray:
    """Return random numbers near 1, as reflectors have for factors."""
    return (1 + np.random.default_rng(0).standard_normal(dims) / 10).astype(kind.numpy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--double", action="store_true", help="rehearse on a double of a GPU")
    parser.add_argument("--kind", default="f32", choices=["f32", "f64", "c64", "c128"])
    options = parser.parse_args()
    for trial in trials(PrimitiveType(options.kind)):
        if options.double and max(trial.arrays[0][1]) > LARGEST_ON_DOUBLE:
            continue
        try:
            size = 4096 if options.double else BYTES_BEFORE
            outcome = _outcome(_driver(double=options.double), trial, size)
            print(f"{trial!s:35s} {outcome}", flush=True)
        except Exception as error:  # whatever a library raises is the outcome  # noqa: BLE001
            print(f"{trial!s:35s} FAILED: {type(error).__name__}: {error}", flush=True)


def _outcome(driver: GpuDriver, trial: Trial, busy_bytes: int) -> str:
    run = Run(driver, trial)
    alone = run.alone()
    wanted = run.results()
    times = f"{alone:10.1f} us, host {run.host(busy_bytes):8.1f} us"
    marked = "marked" if trial.call.can_be_captured else "not marked"
    try:
        graph = run.in_a_graph()
    except Exception as error:  # as above  # noqa: BLE001
        return f"{times}, not captured ({marked}): {type(error).__name__}: {error}"
    same = all(
        np.array_equal(one, other, equal_nan=True)
        for one, other in zip(wanted, run.results(), strict=True)
    )
    said = "the same results" if same else "OTHER RESULTS"
    return f"{times}, captured ({marked}) {graph:10.1f} us, {said}"


def _driver(*, double: bool) -> GpuDriver:
    if double:
        from tests.runtime.gpu.doubles.host_driver import HostDriver

        return HostDriver()
    from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

    return CudaDriver(0)


if __name__ == "__main__":
    main()
