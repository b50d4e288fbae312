"""Kernels computed by a sequence of PTX kernels and library calls."""

from __future__ import annotations

from runtime.gpu.codegen.launch import ArgumentKind, anchored
from runtime.gpu.command import Action, GpuProgram
from runtime.gpu.commands.kernel_command import KernelCommand
from runtime.gpu.libraries.sequence import CallStage, LibrarySequence, SequenceArray, Stage
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, PtxWork, Work
from runtime.program.records.copy import CopyKernel
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LibrarySequenceCommand(KernelCommand):
    """``kernel`` computed by ``sequence``."""

    implementation = "library"
    sequence: LibrarySequence | None = None

    @property
    def decides(self) -> bool:
        return self.sequence is not None and not self.sequence.can_be_captured

    def bind(self, device: GpuProgram) -> Action:
        assert self.sequence is not None, "planned with it"
        workspace = device.workspace(self.sequence.workspace_bytes)
        memory = _SequenceMemory(self.on_device(device), workspace)
        works = [_work(self.name, stage, memory) for stage in self.sequence.stages]
        calls = [device.driver.load(work) for work in works if not _copies_nothing(work)]
        stream, waits = device.stream(Stream.COMPUTE), self.sequence.waits

        def run() -> None:
            if waits:
                # A library that waits holds the lock of captures. Collectives before it must be
                # done, since they wait for peers who may need the lock.
                device.wait(stream)
            for call in calls:
                call(stream)

        return run


@dataclass(frozen=True)
class _SequenceMemory:
    arrays: KernelArraysOnDevice
    workspace: int

    def on_device(self, array: SequenceArray) -> DeviceView:
        if array.kind is ArgumentKind.WORKSPACE:
            return DeviceView(self.workspace + array.number, array.view)
        own = self.arrays.operands if array.kind is ArgumentKind.OPERAND else self.arrays.results
        given = own[array.number]
        return DeviceView(anchored(given.address, given.view)[0], array.view)


def _work(name: str, stage: Stage, memory: _SequenceMemory) -> Work:
    if isinstance(stage, CallStage):
        return stage.call.on(name, tuple(map(memory.on_device, stage.arrays)))
    operands, results = (
        tuple(map(memory.on_device, own)) for own in (stage.operands, stage.results)
    )
    return PtxWork(name, stage.kernel, stage.launches, KernelArraysOnDevice(operands, results))


def _copies_nothing(work: Work) -> bool:
    """Return whether the work copies an array to where it is."""
    if not isinstance(work, PtxWork) or not isinstance(work.kernel, CopyKernel):
        return False
    (source,), (target,) = work.arrays.operands, work.arrays.results
    return source.first == target.first and source.view.strides == target.view.strides
