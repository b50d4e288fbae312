"""Commands of kernels: in order of preference, a PTX kernel, a library call, a library sequence, or the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runtime.buffers.types import ArrayView
from runtime.gpu.codegen.launch import KernelSource
from runtime.gpu.command import Action, Command, GpuProgram, HostCommand, on_host
from runtime.gpu.commands.kernel_command import KernelCommand
from runtime.gpu.commands.library_sequence import LibrarySequenceCommand
from runtime.gpu.libraries import (  # noqa: F401 - they register their sequences
    attention,
    convolution,
    convolution_epilogue,
    factorizations,
    linalg,
    product,
    product_epilogue,
    ragged_dot,
)
from runtime.gpu.libraries.convolution_ways import ConvolutionKernel
from runtime.gpu.libraries.gemm import are_f8
from runtime.gpu.libraries.library_emitters import library_work
from runtime.gpu.libraries.sequence import LibrarySequence, library_sequence
from runtime.gpu.planning import Planner, plans
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, KernelWork
from runtime.program.kernel import CPU_KERNELS, Kernel, KernelArrays
from runtime.program.records.convolution_call import ConvolutionCallKernel
from runtime.program.records.copy import CopyKernel
from runtime.program.records.dot import DotKernel
from runtime.program.records.product_epilogue import ProductEpilogueKernel
from runtime.program.thunks import CopyThunk, KernelThunk, Thunk
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GeneratedKernelCommand(KernelCommand):
    """Kernel computed by the PTX ``launches``."""

    implementation = "ptx"
    launches: tuple[KernelSource, ...] = ()

    def bind(self, device: GpuProgram) -> Action:
        arrays = self.on_device(device)
        enqueue = device.driver.load(KernelWork(self.kernel, self.launches, arrays))
        stream = device.stream(Stream.COMPUTE)
        return lambda: enqueue(stream)


@dataclass(frozen=True)
class LibraryCommand(KernelCommand):
    """Kernel computed by a library function. can_be_captured: a CUDA graph may contain the call."""

    implementation = "library"
    can_be_captured: bool = True

    @property
    def decides(self) -> bool:
        return not self.can_be_captured

    def bind(self, device: GpuProgram) -> Action:
        work = library_work(self.kernel, self.on_device(device))
        assert work is not None, "planned with it"
        enqueue, stream = device.driver.load(work), device.stream(Stream.COMPUTE)
        return lambda: enqueue(stream)


@dataclass(frozen=True)
class HostedCommand(KernelCommand, HostCommand):
    """Kernel computed by the host's CPU kernels on copies of the arrays, which is slow."""

    implementation = "hosted"

    def bind(self, device: GpuProgram) -> Action:
        arrays = self.on_device(device)
        mirror = device.mirror(arrays.operands, arrays.results, arrays.scratch)
        action = CPU_KERNELS.bind(
            self.kernel,
            KernelArrays(
                tuple(map(mirror.array, arrays.operands)),
                tuple(map(mirror.array, arrays.results)),
                tuple(map(mirror.array, arrays.scratch)),
            ),
        )
        return on_host(device, mirror, action)


@plans(KernelThunk)
def plan_kernel(thunk: KernelThunk, planner: Planner) -> Iterator[Command]:
    """Yield the command of a kernel, or nothing if all its results are empty."""
    yield from _kernel_command(
        thunk, thunk.kernel, planner, (thunk.operands, thunk.results, thunk.scratch)
    )


@plans(CopyThunk)
def plan_copy(thunk: CopyThunk, planner: Planner) -> Iterator[Command]:
    """Yield the command of a copy, or nothing if the array is empty."""
    yield from _kernel_command(thunk, CopyKernel(), planner, ((thunk.source,), (thunk.target,), ()))


def _kernel_command(
    thunk: Thunk,
    kernel: Kernel,
    planner: Planner,
    arrays: tuple[tuple[ArrayView, ...], tuple[ArrayView, ...], tuple[ArrayView, ...]],
) -> Iterator[Command]:
    operands, results, scratch = arrays
    if not planner.options.tf32:
        kernel = _without_tf32(kernel)
    if not any(array.view.num_elements for array in results):
        return
    views = KernelArraysOnDevice(*(tuple(DeviceView(0, p.view) for p in own) for own in arrays))
    launches = planner.make_launches(kernel, *map(planner.anchored, arrays))
    if launches is not None:
        yield GeneratedKernelCommand(thunk, kernel, operands, results, scratch, launches)
    elif not _in_f8(kernel) and (work := library_work(kernel, views)) is not None:
        yield LibraryCommand(thunk, kernel, operands, results, scratch, work.can_be_captured)
    elif (sequence := _in_sequence(kernel, planner, operands, results)) is not None:
        yield LibrarySequenceCommand(thunk, kernel, operands, results, (), sequence)
    else:
        yield HostedCommand(thunk, kernel, operands, results, scratch)


def _without_tf32(kernel: Kernel) -> Kernel:
    """Return ``kernel`` with products and convolutions whose operands are not rounded to TF32."""
    if isinstance(kernel, DotKernel | ConvolutionKernel):
        return replace(kernel, tf32=False)
    if isinstance(kernel, ProductEpilogueKernel):
        return replace(kernel, product=replace(kernel.product, tf32=False))
    if isinstance(kernel, ConvolutionCallKernel):
        return replace(kernel, convolution=replace(kernel.convolution, tf32=False))
    return kernel


def _in_f8(kernel: Kernel) -> bool:
    """Return whether ``kernel`` is a matrix product of f8 operands.

    cuBLASLt requires aligned arrays for such products. Only the planner of library sequences checks the alignment.
    """
    return isinstance(kernel, DotKernel) and are_f8(kernel)


def _in_sequence(
    kernel: Kernel,
    planner: Planner,
    operands: tuple[ArrayView, ...],
    results: tuple[ArrayView, ...],
) -> LibrarySequence | None:
    views = planner.anchored(operands), planner.anchored(results)
    return library_sequence(kernel, *views, planner.make_launches, planner.options)
