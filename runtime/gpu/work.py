"""Units of GPU work on arrays at known addresses, as plain data: PTX kernels and library calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from runtime.gpu.codegen.launch import ArgumentKind, KernelSource, PlacedLaunch, anchored, placed
from runtime.gpu.libraries.convolution_call import LibraryConvolution
from runtime.gpu.libraries.gemm import GemmCall
from runtime.gpu.views import DeviceView
from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Work(ABC):
    """Unit of work that ``GpuDriver.load`` binds.

    name: name of the thunk. implementation: its name in reports. can_be_captured: a CUDA graph may contain the work.
    """

    implementation: ClassVar[str]
    can_be_captured: ClassVar[bool] = True
    name: str

    @property
    @abstractmethod
    def reads(self) -> tuple[DeviceView, ...]: ...

    @property
    @abstractmethod
    def writes(self) -> tuple[DeviceView, ...]: ...


@dataclass(frozen=True)
class KernelArraysOnDevice:
    """Operands, results and scratch arrays of a kernel call, with their addresses."""

    operands: tuple[DeviceView, ...]
    results: tuple[DeviceView, ...]
    scratch: tuple[DeviceView, ...] = ()


@dataclass(frozen=True)
class PtxWork(Work):
    """Kernel computed by the PTX ``launches``, which run in order."""

    implementation = "ptx"
    kernel: Kernel
    launches: tuple[KernelSource, ...]
    arrays: KernelArraysOnDevice

    @property
    def placed(self) -> tuple[PlacedLaunch, ...]:
        """Launches with the addresses of their arrays."""
        arrays = self.arrays
        pointers = {
            ArgumentKind.OPERAND: _pointers(arrays.operands),
            ArgumentKind.RESULT: _pointers(arrays.results),
            ArgumentKind.SCRATCH: _pointers(arrays.scratch),
        }
        return placed(self.launches, pointers)

    @property
    def reads(self) -> tuple[DeviceView, ...]:
        return self.arrays.operands

    @property
    def writes(self) -> tuple[DeviceView, ...]:
        return (*self.arrays.scratch, *self.arrays.results)


@dataclass(frozen=True)
class HorizontalWork(Work):
    """Kernels ``parts``, each of one launch, merged horizontally into ``launch``.

    The arrays of ``launch`` are the concatenated arrays of all parts.
    """

    implementation = "ptx"
    parts: tuple[PtxWork, ...]
    launch: KernelSource

    @property
    def placed(self) -> tuple[PlacedLaunch, ...]:
        """The launch with the addresses of the arrays of all parts."""
        arrays = [part.arrays for part in self.parts]
        pointers = {
            ArgumentKind.OPERAND: [p for own in arrays for p in _pointers(own.operands)],
            ArgumentKind.RESULT: [p for own in arrays for p in _pointers(own.results)],
            ArgumentKind.SCRATCH: [p for own in arrays for p in _pointers(own.scratch)],
        }
        return placed((self.launch,), pointers)

    @property
    def reads(self) -> tuple[DeviceView, ...]:
        return tuple(view for part in self.parts for view in part.reads)

    @property
    def writes(self) -> tuple[DeviceView, ...]:
        return tuple(view for part in self.parts for view in part.writes)


@dataclass(frozen=True)
class GemmWork(Work):
    """Matrix product by calls of cuBLAS, which run in order."""

    implementation = "library"
    calls: tuple[GemmCall, ...]
    lhs: DeviceView
    rhs: DeviceView
    result: DeviceView

    @property
    def reads(self) -> tuple[DeviceView, ...]:
        return self.lhs, self.rhs

    @property
    def writes(self) -> tuple[DeviceView, ...]:
        return (self.result,)


@dataclass(frozen=True)
class ConvolutionWork(Work):
    """Call of cuDNN that computes ``convolution``.

    All three arrays are dense in the layout of ``convolution``, from their first elements on.
    """

    implementation = "library"
    convolution: LibraryConvolution
    first: DeviceView
    second: DeviceView
    result: DeviceView

    @property
    def reads(self) -> tuple[DeviceView, ...]:
        return self.first, self.second

    @property
    def writes(self) -> tuple[DeviceView, ...]:
        return (self.result,)


@dataclass(frozen=True)
class _FromOneToOne(Work):
    """Work that reads one array and writes one."""

    implementation = "library"
    source: DeviceView
    target: DeviceView

    @property
    def reads(self) -> tuple[DeviceView, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[DeviceView, ...]:
        return (self.target,)


@dataclass(frozen=True)
class CopyWork(_FromOneToOne):
    """Copy of ``source`` to ``target``, element by element. They have equal sizes and types, but any strides."""


@dataclass(frozen=True)
class FftWork(_FromOneToOne):
    """Discrete Fourier transform of ``source`` over its last ``rank`` dimensions, written to ``target``.

    type: FFT, IFFT, RFFT or IRFFT. Inverse transforms divide by the number of points. length: number of points along
    the last dimension.
    """

    can_be_captured: ClassVar[bool] = False  # libraries allocate from a pool for it
    type: str
    rank: int
    length: int


def _pointers(views: tuple[DeviceView, ...]) -> list[int]:
    return [anchored(view.address, view.view)[0] for view in views]
