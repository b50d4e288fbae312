"""A device's memory over the schedule as blocks: which value lies where, from when to when. Data for pictures."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import numpy as np

from runtime.buffers.live_buffers import LiveBuffers, LiveSlice
from runtime.buffers.types import AllocationKind, BufferAssignment, NamedSlice
from runtime.executable import Executable
from spmd.analysis.source_lines import SourceLines
from spmd.hlo import HloInstruction, HloModule
from spmd.hlo.collective_opcodes import KIND
from spmd.lazy_dataclass import dataclass

#: Number of buffers of the peak that a picture names.
MOST_NAMED = 40


class BlockKind(Enum):
    """Kind of block, which pictures show by colour."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    OUTPUT = "output"
    TEMPORARY = "temporary"
    COLLECTIVE = "collective's result"
    SCRATCH = "scratch, operand copy"


@dataclass(frozen=True, slots=True)
class Block:
    """Memory of a value over time: ``size`` bytes at ``offset``, from position ``start`` to ``end`` of the schedule.
    Offsets of an allocation begin where the previous allocation ends.
    """

    kind: BlockKind
    name: str
    shape: str
    opcode: str
    op_name: str
    source: str
    offset: int
    size: int
    start: int
    end: int


@dataclass(frozen=True)
class MemoryTimeline:
    """Memory of a device over the schedule.

    live: live bytes at each position.
    total: bytes of all allocations.
    largest: the largest blocks at the peak, largest first, at most MOST_NAMED.
    """

    module: str
    devices: int
    blocks: tuple[Block, ...]
    live: np.ndarray
    total: int
    peak: int
    largest: tuple[Block, ...]

    @property
    def end(self) -> int:
        return len(self.live) - 1

    @property
    def peak_bytes(self) -> int:
        return int(self.live[self.peak])

    @property
    def title(self) -> str:
        return f"{self.module} on {self.devices} devices: memory of one device"

    @property
    def subtitle(self) -> str:
        where = f"at position {self.peak} of {self.end}"
        return f"{self.total:,} bytes allocated, peak of {self.peak_bytes:,} live bytes {where}"


def memory_timeline(executable: Executable) -> MemoryTimeline:
    assignment = executable.program.assignment
    live = LiveBuffers(assignment)
    describe = _Describer(executable.module, assignment)
    blocks = tuple(block for one in live.live_slices for block in describe.blocks(one))
    peak = live.peak
    there = sorted((b for b in blocks if b.start <= peak <= b.end), key=lambda b: -b.size)
    total = sum(allocation.size for allocation in assignment.allocations)
    return MemoryTimeline(
        executable.program.name,
        executable.num_devices,
        blocks,
        live.bytes_at,
        total,
        peak,
        tuple(there[:MOST_NAMED]),
    )


class _Describer:
    """Descriptions of values, by the name of the instruction to which they belong."""

    def __init__(self, module: HloModule, assignment: BufferAssignment) -> None:
        self._lines = SourceLines(module)
        self._named = {i.name: i for i in module.all_instructions()}
        self._allocations = assignment.allocations
        self._bases = {}
        base = 0
        for allocation in assignment.allocations:
            self._bases[allocation.index] = base
            base += allocation.size

    def blocks(self, storage: LiveSlice) -> Iterator[Block]:
        """Yield one block for each value in the slice, until the next one is written there."""
        for n, value in enumerate(storage.values):
            following = (
                storage.values[n + 1].start - 1 if n + 1 < len(storage.values) else storage.end
            )
            start = storage.start if n == 0 else value.start
            if following >= start:
                yield self._block(value, start, following)

    def _block(self, value: NamedSlice, start: int, end: int) -> Block:
        instruction = self._instruction(value.name)
        memory_slice = value.slice
        return Block(
            self._kind(value, instruction),
            value.name,
            value.shape,
            str(instruction.opcode) if instruction is not None else "",
            instruction.annotations.metadata.op_name if instruction is not None else "",
            self._lines.of(instruction) if instruction is not None else "",
            self._bases[memory_slice.allocation] + memory_slice.offset,
            memory_slice.size,
            start,
            end,
        )

    def _instruction(self, name: str) -> HloInstruction | None:
        """Return the instruction of a value's name: leaves are ``name{1,0}``, scratch and operand copies
        ``name.scratch`` and ``name.operand2``.
        """
        plain = name.partition("{")[0]
        return self._named.get(plain) or self._named.get(plain.rpartition(".")[0])

    def _kind(self, value: NamedSlice, instruction: HloInstruction | None) -> BlockKind:
        kind = self._allocations[value.slice.allocation].kind
        if kind is not AllocationKind.HEAP:
            return BlockKind(kind.value)
        if value.output is not None:
            return BlockKind.OUTPUT
        if instruction is None or value.name.partition("{")[0] != instruction.name:
            return BlockKind.SCRATCH
        return BlockKind.COLLECTIVE if instruction.opcode in KIND else BlockKind.TEMPORARY
