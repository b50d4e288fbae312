"""Calls of attention fusions, planned from their computations as text."""

from __future__ import annotations

from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries import attention  # noqa: F401 - it registers its sequence
from runtime.gpu.libraries.sequence import CallStage, LibrarySequence, library_sequence
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.triton.kernel import TritonKernel
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, TritonWork
from runtime.program.records.attention import AttentionKernel
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import FusionAttrs
from spmd.text.parser import parse_module
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.triton.running import dense_views


def fusion_of(text: str) -> AttentionKernel:
    """The record of the fusion of the computation."""
    entry = parse_module(text).entry
    parameters = [HloInstruction(Opcode.PARAMETER, x.shape, name=x.name) for x in entry.parameters]
    fusion = HloInstruction(
        Opcode.FUSION,
        entry.root.shape,
        parameters,
        FusionAttrs("kCustom"),
        name="attention",
        called_computations=[entry],
    )
    return AttentionKernel(fusion)


def planned(
    text: str, options: GpuOptions = DEFAULT
) -> tuple[LibrarySequence | None, AttentionKernel]:
    kernel = fusion_of(text)
    operands, results = dense_views(text)
    make = launch_maker(HostDriver())
    return library_sequence(kernel, tuple(operands), tuple(results), make, options), kernel


def launch_of(sequence: LibrarySequence | None) -> TritonKernel:
    assert sequence is not None
    (stage,) = sequence.stages
    assert isinstance(stage, CallStage)
    work = stage.call.on(tuple(DeviceView(0, array.view) for array in stage.arrays))
    assert isinstance(work, TritonWork)
    return work.launch


def work_on(text: str, operands: list[DeviceView], results: list[DeviceView]) -> TritonWork:
    """The launch of the only kernel of the fusion on row-major arrays."""
    sequence, kernel = planned(text)
    arrays = KernelArraysOnDevice(tuple(operands), tuple(results))
    return TritonWork(kernel, launch_of(sequence), arrays)
