"""Builder of the steps of a collective among GPUs. Elements move as bytes; only reductions know types.

NCCL joins and cuts whole pieces of memory. Along a dimension that is not the first one, what belongs to a member is a
*block*: as many rows as all dimensions before it have elements, each at a pitch. It is copied to or from scratch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from collectives.communicator.steps.device_steps import (
    CopyRows,
    DeviceArray,
    DeviceSteps,
    LocalStep,
    NcclCall,
)

SCRATCH_ALIGNMENT = 256


@dataclass(frozen=True)
class Block:
    """``rows`` rows of ``row_bytes`` bytes from ``pointer`` on, ``pitch`` bytes from one to the next."""

    pointer: int
    pitch: int
    row_bytes: int
    rows: int

    @staticmethod
    def of_array(array: DeviceArray) -> Block:
        return Block(array.pointer, array.nbytes, array.nbytes, 1)

    @staticmethod
    def part(array: DeviceArray, index: int, count: int, dimension: int) -> Block:
        """The ``index``-th of ``count`` equal parts along ``dimension``."""
        rows = math.prod(array.shape[:dimension])
        pitch = array.nbytes // rows if rows else 0
        row_bytes = pitch // count
        return Block(array.pointer + index * row_bytes, pitch, row_bytes, rows)

    @staticmethod
    def parts(array: DeviceArray, count: int, dimension: int) -> list[Block]:
        """Return all of ``count`` equal parts along ``dimension``."""
        return [Block.part(array, index, count, dimension) for index in range(count)]

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def is_dense(self) -> bool:
        return self.rows <= 1 or self.pitch == self.row_bytes

    def at(self, pointer: int) -> Block:
        """Return a block of the same rows at ``pointer``, without gaps."""
        return Block(pointer, self.row_bytes, self.row_bytes, self.rows)


@dataclass
class DeviceStepBuilder:
    """Steps as they are put together. ``scratch``: where this communicator's begins; ``scratch_bytes``: taken of it."""

    index: int
    count: int
    scratch: int
    scratch_bytes: int = 0
    before: list[LocalStep] = field(default_factory=list)
    calls: list[NcclCall] = field(default_factory=list)
    after: list[LocalStep] = field(default_factory=list)

    def steps(self) -> DeviceSteps:
        return DeviceSteps(tuple(self.before), tuple(self.calls), tuple(self.after))

    def allocate_scratch(self, num_bytes: int) -> int:
        """Address of scratch that this collective has for itself."""
        start = self.scratch + self.scratch_bytes
        self.scratch_bytes += -(-num_bytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        return start

    def packed(self, block: Block, *, always: bool = False) -> int:
        """Return the address at which the block's bytes lie without gaps before NCCL is called; copies if necessary."""
        if block.is_dense and not always:
            return block.pointer
        dense = block.at(self.allocate_scratch(block.nbytes))
        self.before += copied(block, dense)
        return dense.pointer


@dataclass(frozen=True)
class DeviceBuffers:
    operands: tuple[DeviceArray, ...]
    results: tuple[DeviceArray, ...]

    @property
    def are_exchanged_in_place(self) -> bool:
        """Return whether some result lies on some operand."""
        return any(map(self._is_written, self.operands))

    def is_lost(self, k: int, *, in_place: bool) -> bool:
        """Return whether operand ``k`` is written before all is read.

        in_place: whether its own result may lie where it does.
        """
        own = [] if in_place else [self.results[k]]
        others = [*self.results[:k], *self.results[k + 1 :], *own]
        return any(result.overlaps(self.operands[k]) for result in others)

    def _is_written(self, operand: DeviceArray) -> bool:
        return any(result.overlaps(operand) for result in self.results)


def copied(source: Block, target: Block) -> list[CopyRows]:
    """Nothing where there is nothing to copy. As many bytes each; unless one is dense, as many rows, too."""
    if source.nbytes == 0 or source == target:
        return []
    if source.is_dense and target.is_dense:
        rows, row_bytes = 1, source.nbytes
    elif source.is_dense:
        rows, row_bytes = target.rows, target.row_bytes
    else:
        assert target.is_dense or target.row_bytes == source.row_bytes
        rows, row_bytes = source.rows, source.row_bytes
    source_pitch = row_bytes if source.is_dense else source.pitch
    target_pitch = row_bytes if target.is_dense else target.pitch
    return [CopyRows(target.pointer, target_pitch, source.pointer, source_pitch, row_bytes, rows)]
