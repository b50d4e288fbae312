"""Run a kernel on arrays in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from runtime.buffers.types import ArrayView
from runtime.cpu.sharing import bind_shared
from runtime.cpu.step.segment import Action, Segment, either, segment_of
from runtime.program.kernel import Kernel, KernelArrays
from runtime.program.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind, uses


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

    def prepare(self, program: LoadedProgram) -> Action | Segment:
        arrays = KernelArrays(
            tuple(map(program.array, self.operands)),
            tuple(map(program.array, self.results)),
            tuple(map(program.array, self.scratch)),
        )
        return bound_kernel(self, program, self.kernel, arrays)


def bound_kernel(
    thunk: Thunk, program: LoadedProgram, kernel: Kernel, arrays: KernelArrays
) -> Action | Segment:
    """``thunk``'s kernel, cut for threads and for looks at messages in flight; for the latter not in blocking steps."""
    cutting = program.cutting_of(thunk)
    action = bind_shared(program.kernels, kernel, arrays, cutting)
    if not program.progress.are_needed:
        return action
    number = program.number_of(thunk)
    own = program.progress.around(number, program.seconds_of(thunk), segment_of(number, action))
    if program.blocking is None or cutting.in_turn == 1:
        return own
    whole = bind_shared(program.kernels, kernel, arrays, replace(cutting, in_turn=1))
    return either(number, program.blocking, segment_of(number, whole), own)
