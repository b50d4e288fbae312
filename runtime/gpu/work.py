"""Units of GPU work on arrays at known addresses, as plain data: PTX kernels and library calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from runtime.gpu.codegen.launch import ArgumentKind, KernelSource, PlacedLaunch, anchored, placed
from runtime.gpu.libraries.convolution_call import LibraryConvolution
from runtime.gpu.libraries.gemm import GemmCall
from runtime.gpu.triton.kernel import TritonKernel
from runtime.gpu.views import DeviceView
from runtime.program.kernel import Kernel
from runtime.program.records.reference import ReferenceKernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Work:
    """Unit of work that ``GpuDriver.load`` binds. can_be_captured: a CUDA graph may contain the work."""

    can_be_captured: ClassVar[bool] = True


@dataclass(frozen=True)
class KernelArraysOnDevice:
    """Operands, results and scratch arrays of a kernel call, with their addresses."""

    operands: tuple[DeviceView, ...]
    results: tuple[DeviceView, ...]
    scratch: tuple[DeviceView, ...] = ()


@dataclass(frozen=True)
class KernelWork(Work):
    """Kernel computed by the PTX ``launches``, which run in order."""

    kernel: Kernel
    launches: tuple[KernelSource, ...]
    arrays: KernelArraysOnDevice

    @property
    def placed(self) -> tuple[PlacedLaunch, ...]:
        """Launches with the addresses of their arrays."""
        return _placed(self.launches, (self.arrays,))


@dataclass(frozen=True)
class HorizontalWork(Work):
    """Kernels ``parts``, each of one launch, merged horizontally into ``launch``.

    The arrays of ``launch`` are the concatenated arrays of all parts.
    """

    parts: tuple[KernelWork, ...]
    launch: KernelSource

    @property
    def placed(self) -> tuple[PlacedLaunch, ...]:
        """The launch with the addresses of the arrays of all parts."""
        return _placed((self.launch,), [part.arrays for part in self.parts])


@dataclass(frozen=True)
class GemmWork(Work):
    """Matrix product by calls of cuBLAS, which run in order.

    addend, bias: arrays that the epilogues of the calls read; None if they read none. aux: array that they write if
    their activation is GELU, and read if it is GELU_GRADIENT, or None. scales: f32 numbers by which the product is
    multiplied.
    """

    calls: tuple[GemmCall, ...]
    lhs: DeviceView
    rhs: DeviceView
    result: DeviceView
    addend: DeviceView | None = None
    bias: DeviceView | None = None
    aux: DeviceView | None = None
    scales: tuple[DeviceView, ...] = ()


@dataclass(frozen=True)
class ConvolutionWork(Work):
    """Call of cuDNN that computes ``convolution``.

    All arrays are dense in the layout of ``convolution``, from their first elements on. addend, bias: arrays that its
    epilogue reads; None if it reads none. otherwise: kernel that computes the epilogue in the memory of ``result``, if
    cuDNN has no kernel for both.
    """

    convolution: LibraryConvolution
    first: DeviceView
    second: DeviceView
    result: DeviceView
    addend: DeviceView | None = None
    bias: DeviceView | None = None
    otherwise: KernelWork | None = None

    @property
    def without_epilogue(self) -> ConvolutionWork:
        """The call without its epilogue."""
        convolution = replace(self.convolution, epilogue=None)
        return ConvolutionWork(convolution, self.first, self.second, self.result)


@dataclass(frozen=True)
class TritonWork(Work):
    """Launch of the Triton kernel ``launch``, which computes results of ``kernel``."""

    kernel: ReferenceKernel
    launch: TritonKernel
    arrays: KernelArraysOnDevice

    @property
    def pointers(self) -> tuple[int, ...]:
        """Arguments of the launch: addresses of the first elements of operands and results."""
        return tuple(view.first for view in (*self.arrays.operands, *self.arrays.results))


@dataclass(frozen=True)
class CopyWork(Work):
    """Copy of ``source`` to ``target``, element by element. They have equal sizes and types, but any strides."""

    source: DeviceView
    target: DeviceView


@dataclass(frozen=True)
class FftWork(Work):
    """Discrete Fourier transform of ``source`` over its last ``rank`` dimensions, written to ``target``.

    type: FFT, IFFT, RFFT or IRFFT. Inverse transforms divide by the number of points. length: number of points along
    the last dimension.
    """

    can_be_captured: ClassVar[bool] = False  # libraries allocate from a pool for it
    source: DeviceView
    target: DeviceView
    type: str
    rank: int
    length: int


def _placed(
    launches: tuple[KernelSource, ...], calls: Sequence[KernelArraysOnDevice]
) -> tuple[PlacedLaunch, ...]:
    """Return ``launches`` with the addresses of their arrays, which are those of all ``calls``, one after another."""

    def pointers(arrays: Iterable[tuple[DeviceView, ...]]) -> list[int]:
        return [anchored(view.address, view.view)[0] for own in arrays for view in own]

    return placed(
        launches,
        {
            ArgumentKind.OPERAND: pointers(call.operands for call in calls),
            ArgumentKind.RESULT: pointers(call.results for call in calls),
            ArgumentKind.SCRATCH: pointers(call.scratch for call in calls),
        },
    )
