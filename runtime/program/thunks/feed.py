"""Take a value from the host (infeed), or give it one (outfeed)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from runtime.arrays.host_feed import FeedSite
from runtime.buffers.types import ArrayView
from runtime.cpu.step.segment import Action
from runtime.program.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind, uses


@dataclass(frozen=True)
class InfeedThunk(Thunk):
    """Write the next value that the host feeds this device."""

    site: FeedSite
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)

    def prepare(self, program: LoadedProgram) -> Action:
        host, device = program.host, program.communicator.rank
        targets = tuple(map(program.array, self.results))

        def run() -> None:
            for target, array in zip(targets, host.take(self.site, device), strict=True):
                np.copyto(target, array)

        return run


@dataclass(frozen=True)
class OutfeedThunk(Thunk):
    """Give the host a value of this device."""

    site: FeedSite
    operands: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)

    def prepare(self, program: LoadedProgram) -> Action:
        host, device = program.host, program.communicator.rank
        arrays = tuple(map(program.array, self.operands))
        return lambda: host.put(self.site, device, arrays)
