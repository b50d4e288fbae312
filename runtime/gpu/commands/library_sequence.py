"""Command of a kernel that a sequence of PTX kernels and library calls computes."""

from __future__ import annotations

from runtime.gpu.codegen.launch import ArgumentKind, anchored
from runtime.gpu.command import Action, GpuProgram
from runtime.gpu.commands.kernel_command import KernelCommand
from runtime.gpu.libraries.sequence import CallStage, LibrarySequence, SequenceArray, Stage
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, KernelWork, Work
from runtime.program.records.copy import CopyKernel
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LibrarySequenceCommand(KernelCommand):
    """Call of ``kernel``, computed by the stages of ``sequence``."""

    implementation = "library"
    sequence: LibrarySequence | None = None

    @property
    def decides(self) -> bool:
        return self.sequence is not None and not self.sequence.can_be_captured

    def bind(self, device: GpuProgram) -> Action:
        assert self.sequence is not None, "planned with it"
        workspace = device.workspace(self.sequence.workspace_bytes)
        memory = _SequenceMemory(self.on_device(device), workspace)
        works = [_work(stage, memory) for stage in self.sequence.stages]
        calls = [device.driver.load(work) for work in works if not _copies_nothing(work)]
        stream, waits = device.stream(Stream.COMPUTE), self.decides

        def run() -> None:
            if waits:
                # A library call that waits holds the capture lock. Earlier collectives must be
                # complete first, since they wait for peers that may need the lock.
                device.wait(stream)
            for call in calls:
                call(stream)

        return run


@dataclass(frozen=True)
class _SequenceMemory:
    """Arrays of the kernel and address of the workspace, which resolve the arrays of a sequence."""

    arrays: KernelArraysOnDevice
    workspace: int

    def on_device(self, array: SequenceArray) -> DeviceView:
        if array.kind is ArgumentKind.WORKSPACE:
            return DeviceView(self.workspace + array.number, array.view)
        own = self.arrays.operands if array.kind is ArgumentKind.OPERAND else self.arrays.results
        given = own[array.number]
        return DeviceView(anchored(given.address, given.view)[0], array.view)


def _work(stage: Stage, memory: _SequenceMemory) -> Work:
    if isinstance(stage, CallStage):
        return stage.call.on(tuple(map(memory.on_device, stage.arrays)))
    operands, results = (
        tuple(map(memory.on_device, own)) for own in (stage.operands, stage.results)
    )
    return KernelWork(stage.kernel, stage.launches, KernelArraysOnDevice(operands, results))


def _copies_nothing(work: Work) -> bool:
    """Return whether ``work`` copies an array to its own memory."""
    if not isinstance(work, KernelWork) or not isinstance(work.kernel, CopyKernel):
        return False
    (source,), (target,) = work.arrays.operands, work.arrays.results
    return source.first == target.first and source.view.strides == target.view.strides
