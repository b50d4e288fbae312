"""A GpuDriver whose device is the host's memory: it computes late, and says where work is not ordered.

The processor's binders compute kernels in PTX from the same records. Matrix products are computed from a reading of
cuBLAS's arguments that shares nothing with the code that writes them. NumPy makes copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from runtime.gpu.driver import Allocator
from runtime.gpu.errors import GpuMemoryError
from runtime.gpu.libraries.gemm import GemmCall
from runtime.gpu.libraries.linalg_work import SolverWork, TriangularSolveWork
from runtime.gpu.views import DeviceView
from runtime.gpu.work import (
    ConvolutionWork,
    CopyWork,
    FftWork,
    GemmWork,
    HorizontalWork,
    KernelArraysOnDevice,
    KernelWork,
    TritonWork,
    Work,
)
from runtime.program.gemm_epilogue import Activation
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.reference import ReferenceKernel
from spmd.shape import PrimitiveType
from tests.collectives.communicator.nccl.host_device import memory_at
from tests.runtime.gpu.doubles.cudnn_reading import convolve
from tests.runtime.gpu.doubles.gelu import gelu, gelu_gradient
from tests.runtime.gpu.doubles.host_linalg import call_solver, solve_triangular
from tests.runtime.gpu.doubles.host_streams import HostEvent, HostGpu, HostStream, HostStreams, Op
from tests.runtime.gpu.doubles.races import Bytes
from tests.runtime.gpu.doubles.work_arrays import reads_and_writes


@dataclass
class HostBlock:
    """Memory on the host. keep: the owner of the memory."""

    memory: np.ndarray
    keep: object = None

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data)


class HostDriver:
    name = "a double of a GPU"
    arch = "sm_90"
    multiprocessors = 132
    failures: tuple[type[Exception], ...] = ()

    def __init__(self, free_bytes: int = 1 << 30, gpu: HostGpu | None = None) -> None:
        """Create a driver of ``gpu``, which other devices' drivers may share, or of a GPU of its own."""
        self.free_bytes = free_bytes
        self.gpu = gpu or HostGpu()
        self.captures = self.gpu.captures
        self.streams = HostStreams(self.gpu)
        self._blocks: list[HostBlock] = []
        self.allocations = 0
        self.host_bytes = 0
        self.ranges: list[str] = []
        self.launched: list[str] = []

    def use(self) -> None:
        pass

    # ---- memory
    def allocate(self, num_bytes: int, allocator: Allocator | None = None) -> HostBlock:
        if allocator is not None:
            raw = allocator(num_bytes)
            block = HostBlock(memory_at(raw.ptr, num_bytes), raw)
            block.memory[:] = 0
            return block
        self._refused_beside_captures("allocating")
        if num_bytes > self.free_bytes:
            raise GpuMemoryError(f"{num_bytes:,} bytes of {self.name}")
        whole = np.zeros(num_bytes + 512, np.uint8)
        start = -whole.ctypes.data % 256
        block = HostBlock(whole[start : start + num_bytes])
        self._blocks.append(block)
        return block

    def allocate_on_host(self, num_bytes: int) -> HostBlock:
        self.host_bytes += num_bytes
        return self.allocate(num_bytes)

    def _refused_beside_captures(self, what: str) -> None:
        """Count an allocation. As on a GPU, it waits until no other thread captures."""
        with self.captures:
            self.gpu.refuse_beside_captures(what)
        self.allocations += 1

    def pinned(self, num_bytes: int) -> np.ndarray:
        self._refused_beside_captures("allocating pinned memory")
        whole = np.zeros(num_bytes + 64, np.uint8)
        start = -whole.ctypes.data % 64
        return whole[start : start + num_bytes]

    def pin(self, memory: np.ndarray) -> None:
        self._refused_beside_captures("pinning memory")

    def array(self, view: DeviceView) -> np.ndarray:
        shape = view.view
        if shape.num_elements == 0:
            return np.zeros(shape.dims, shape.element_type.numpy)
        memory, start = self._at(view.first)
        return np.ndarray(shape.dims, shape.element_type.numpy, memory, start, shape.strides)

    def _at(self, address: int) -> tuple[np.ndarray, int]:
        """Return the block that ``address`` lies in, and the offset in it."""
        for block in self._blocks:
            if block.address <= address < block.address + block.memory.size:
                return block.memory, address - block.address
        raise AssertionError(f"nothing was allocated at {address:#x}")

    # ---- streams
    def stream(self, *, urgent: bool = False) -> HostStream:
        return self.streams.stream("urgent stream" if urgent else "stream")

    def event(self, *, timed: bool = False) -> HostEvent:
        return HostEvent(timed)

    def nanoseconds(self, first: HostEvent, last: HostEvent) -> int:
        assert first.timed
        assert last.timed
        assert first.at is not None, "not come to pass"
        assert last.at is not None, "not come to pass"
        return 1000 * (last.at - first.at)

    # ---- copies
    def upload(self, target: int, source: np.ndarray, stream: HostStream) -> None:
        if source.nbytes:
            memory, start = self._at(target)
            data = source.reshape(-1).view(np.uint8)
            place = memory[start : start + data.size]
            assert place.size == data.size, "a copy past the end"
            self._put(
                stream,
                "upload",
                partial(np.copyto, place, data),
                [Bytes(data.ctypes.data, 1, (data.size,), (1,))],
                [Bytes(target, 1, (data.size,), (1,))],
            )

    def download(self, target: np.ndarray, source: int, stream: HostStream) -> None:
        if target.nbytes:
            memory, start = self._at(source)
            data = target.reshape(-1).view(np.uint8)
            assert np.shares_memory(data, target)
            place = memory[start : start + data.size]
            assert place.size == data.size, "a copy past the end"
            self._put(
                stream,
                "download",
                partial(np.copyto, data, place),
                [Bytes(source, 1, (data.size,), (1,))],
                [Bytes(data.ctypes.data, 1, (data.size,), (1,))],
            )

    def copy(self, target: int, source: int, num_bytes: int, stream: HostStream) -> None:
        to, first = self._at(target)
        of, start = self._at(source)
        self._put(
            stream,
            "copy",
            partial(np.copyto, to[first : first + num_bytes], of[start : start + num_bytes]),
            [Bytes(source, 1, (num_bytes,), (1,))],
            [Bytes(target, 1, (num_bytes,), (1,))],
        )

    # ---- work
    def load(self, work: Work) -> Callable[[HostStream], None]:
        with self.captures:
            self.gpu.refuse_beside_captures("loading a module")
        run = self._loaded(work)
        reads, writes = (list(map(bytes_of, arrays)) for arrays in reads_and_writes(work))
        return lambda stream: self._put(stream, type(work).__name__, run, reads, writes)

    def _loaded(self, work: Work) -> Callable[[], None]:
        if isinstance(work, HorizontalWork):
            return partial(_run_all, list(map(self._loaded, work.parts)))
        if isinstance(work, KernelWork):
            return CPU_KERNELS.bind(work.kernel, self._arrays(work.arrays))
        if isinstance(work, TritonWork):
            # The reference evaluator, a reading of the fusion that shares nothing with the generated kernel.
            fusion = ReferenceKernel(work.kernel.instruction)
            return CPU_KERNELS.bind(fusion, self._arrays(work.arrays))
        if isinstance(work, CopyWork):
            return partial(np.copyto, self.array(work.target), self.array(work.source))
        if isinstance(work, FftWork):
            return partial(self._transform, work)
        if isinstance(work, ConvolutionWork):
            return partial(self._convolve, work)
        if isinstance(work, TriangularSolveWork):
            return partial(
                solve_triangular, work.solve, self.array(work.triangles), self.array(work.sides)
            )
        if isinstance(work, SolverWork):
            return partial(self._factorize, work)
        assert isinstance(work, GemmWork)
        return partial(self._multiply, work)

    def _arrays(self, arrays: KernelArraysOnDevice) -> KernelArrays:
        return KernelArrays(
            tuple(map(self.array, arrays.operands)),
            tuple(map(self.array, arrays.results)),
            tuple(map(self.array, arrays.scratch)),
        )

    def _convolve(self, work: ConvolutionWork) -> None:
        called = work.convolution

        def seen(view: DeviceView, dims: Sequence[int]) -> np.ndarray:
            memory, start = self._at(view.first)
            dtype = called.element_type.numpy
            strides = [np.dtype(dtype).itemsize * stride for stride in called.strides_of(dims)]
            return np.ndarray(dims, dtype, memory, start, tuple(strides))

        first, second, result = map(seen, (work.first, work.second, work.result), called.arrays)
        features = (1, called.output[1], *(1 for _ in called.output[2:]))
        convolve(
            called,
            first,
            second,
            result,
            addend=None if work.addend is None else seen(work.addend, called.output),
            bias=None if work.bias is None else seen(work.bias, features),
        )

    def _transform(self, work: FftWork) -> None:
        assert self.streams.capture is None
        source, axes = self.array(work.source), range(-work.rank, 0)
        if work.type == "IRFFT":
            sizes = (*source.shape[source.ndim - work.rank : -1], work.length)
            values = np.fft.irfftn(source, s=sizes, axes=axes)
        else:
            values = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn}[work.type](
                source, axes=axes
            )
        np.copyto(self.array(work.target), values, casting="same_kind")

    def _factorize(self, work: SolverWork) -> None:
        assert self.streams.capture is None
        call_solver(work.call, [self.array(view) for view in work.arrays])

    def _multiply(self, work: GemmWork) -> None:
        for call in _apart(work.calls):
            compute = call.compute.numpy
            first, second = (work.rhs, work.lhs) if call.swapped else (work.lhs, work.rhs)
            a = self._column_major(first, call.a, (call.m, call.k), call.count, call.a_kind.numpy)
            b = self._column_major(second, call.b, (call.k, call.n), call.count, call.b_kind.numpy)
            c = self._column_major(
                work.result, call.c, (call.m, call.n), call.count, call.result.numpy
            )
            made = np.matmul(a.astype(compute), b.astype(compute))
            if call.epilogue is not None:
                made = self._after(work, call, made)
            np.copyto(c, made, casting="unsafe")

    def _after(self, work: GemmWork, call: GemmCall, made: np.ndarray) -> np.ndarray:
        """The epilogue of ``made`` [count, m, n], as cublasLtMatmul reads its arguments: C lies like D."""
        epilogue, compute = call.epilogue, call.compute.numpy
        assert epilogue is not None
        assert epilogue.bias == (work.bias is not None)
        made = compute.type(epilogue.alpha) * made
        assert epilogue.scales == len(work.scales) <= 2
        for scale in work.scales:
            assert call.a_kind.byte_size == 1, "only f8 operands have scales"
            assert scale.view.element_type.numpy == compute == np.float32
            memory, start = self._at(scale.first)
            made = made * np.ndarray((), np.float32, memory, start)
        if epilogue.beta:
            assert work.addend is not None, "beta of nothing"
            assert work.addend.view.element_type is call.result
            c = self._column_major(
                work.addend, call.c, (call.m, call.n), call.count, call.result.numpy
            )
            made = made + compute.type(epilogue.beta) * c.astype(compute)
        if work.bias is not None:
            assert work.bias.view.element_type is call.result
            memory, start = self._at(work.bias.first)
            vector = np.ndarray((call.m,), call.result.numpy, memory, start)
            made = made + vector.astype(compute)[:, np.newaxis]
        return self._activated(work, call, made)

    def _activated(self, work: GemmWork, call: GemmCall, made: np.ndarray) -> np.ndarray:
        """The activation of ``made`` [count, m, n]. Arguments of gelu lie like D, and share no memory with it."""
        epilogue, compute = call.epilogue, call.compute.numpy
        assert epilogue is not None
        assert epilogue.aux == (work.aux is not None)
        at = made
        if work.aux is not None:
            assert work.aux.view.element_type is call.result
            first, out = work.aux.first, work.result.first
            assert abs(first - out) >= work.aux.view.byte_size, "the library's result is there"
            assert first % 16 == call.c.leading % 8 == call.c.step % 8 == 0
            aux = self._column_major(
                work.aux, call.c, (call.m, call.n), call.count, call.result.numpy
            )
            if epilogue.activation is Activation.GELU:
                np.copyto(aux, made, casting="unsafe")
            at = aux.astype(compute)
        match epilogue.activation:
            case None:
                return made
            case Activation.RELU:
                return np.maximum(made, 0)
            case Activation.GELU:
                return gelu(made)
            case Activation.GELU_GRADIENT:
                assert work.aux is not None
                return made * gelu_gradient(at)
        raise AssertionError(epilogue.activation)

    def _column_major(self, view, matrix, sizes, count, dtype) -> np.ndarray:  # type: ignore[no-untyped-def]
        """Return the matrices as cublasGemmStridedBatchedEx reads its arguments."""
        stored = sizes[::-1] if matrix.transposed else sizes
        assert matrix.leading >= stored[0], "a leading dimension that cuBLAS refuses"
        item = np.dtype(dtype).itemsize
        memory, start = self._at(view.first + matrix.offset)
        strides = (matrix.step * item, item, matrix.leading * item)
        array = np.ndarray((count, *stored), dtype, memory, start, strides)
        return array.swapaxes(1, 2) if matrix.transposed else array

    def _put(
        self,
        stream: HostStream,
        what: str,
        run: Callable[[], None],
        reads: list[Bytes],
        writes: list[Bytes],
    ) -> None:
        self.launched.append(what)
        stream.put(Op(what, run, tuple(reads), tuple(writes)))

    def open_range(self, name: str) -> None:
        self.ranges.append(name)

    def close_range(self) -> None:
        pass


def _apart(calls: tuple[GemmCall, ...]) -> Iterator[GemmCall]:
    """Yield calls by pointers as one call for each matrix, as cublasGemmBatchedEx reads them."""
    for call in calls:
        if not call.offsets:
            yield call
        for places in call.offsets:
            a, b, c = (
                replace(matrix, offset=place)
                for matrix, place in zip((call.a, call.b, call.c), places, strict=True)
            )
            yield replace(call, count=1, a=a, b=b, c=c, offsets=())


def bytes_of(view: DeviceView) -> Bytes:
    shape = view.view
    width = 1 if shape.element_type is PrimitiveType.PRED else shape.element_type.byte_size
    return Bytes(view.first, width, shape.dims, shape.strides)


def _run_all(parts: list[Callable[[], None]]) -> None:
    for part in parts:
        part()
