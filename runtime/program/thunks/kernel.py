"""Run a kernel on arrays in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.program.kernel import Kernel
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind, uses


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
