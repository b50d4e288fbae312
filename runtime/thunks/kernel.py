"""Run a kernel on arrays in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.kernel import Kernel, KernelArrays
from runtime.sharing import bind_shared
from runtime.thunks.segment import Action
from runtime.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind, uses


@dataclass(frozen=True)
class KernelThunk(Thunk):
    """One kernel call: matrix products, loops, reductions, slices, and the library functions behind rare ones."""

    kernel: Kernel
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]
    scratch: tuple[ArrayView, ...] = ()

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
        yield from uses(UseKind.WRITE, Role.SCRATCH, self.scratch)
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)

    def prepare(self, program: LoadedProgram) -> Action:
        arrays = KernelArrays(
            tuple(map(program.array, self.operands)),
            tuple(map(program.array, self.results)),
            tuple(map(program.array, self.scratch)),
        )
        return bind_shared(program.kernels, self.kernel, arrays, program.pieces_for(self))
