"""Bring a value to another place or into another layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.copy.copy import CopyKernel
from runtime.cpu.step.segment import Action, Segment
from runtime.program.kernel import KernelArrays
from runtime.program.thunks.kernel import bound_kernel
from runtime.program.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind


@dataclass(frozen=True)
class CopyThunk(Thunk):
    """``target`` holds the value of ``source`` afterwards. ``name``: the instruction that needs it there."""

    source: ArrayView
    target: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.source, Role.OPERAND)
        yield BufferUse(UseKind.WRITE, self.target, Role.RESULT)

    def prepare(self, program: LoadedProgram) -> Action | Segment:
        arrays = KernelArrays((program.array(self.source),), (program.array(self.target),))
        return bound_kernel(self, program, CopyKernel(), arrays)
