"""The arrays that a collective is bound to, their addresses and their overlaps."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from collectives.communicator.group import Array
from spmd.lazy_dataclass import dataclass
from spmd.limits import out_of_memory, require_bytes

MEMORY_ALIGNMENT = 64
"""Allocated memory starts at a multiple of this many bytes, the line of a cache."""


def private_memory(num_bytes: int) -> Array:
    """Return ``num_bytes`` zero bytes at a multiple of 64 bytes, in memory that no other process can reach.

    Raises OutOfMemoryError if the machine has less memory.
    """
    require_bytes("the memory of one device", num_bytes)
    try:
        block = np.zeros(num_bytes + MEMORY_ALIGNMENT, np.uint8)
    except MemoryError:
        raise out_of_memory("the memory of one device", num_bytes) from None
    first = -block.ctypes.data % MEMORY_ALIGNMENT
    return block[first : first + num_bytes]


def private_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros in ``private_memory``.

    NumPy's own memory is at multiples of 16 bytes, to which native code cannot store aligned vectors.
    """
    data = private_memory(math.prod(shape) * dtype.itemsize)
    return data.view(dtype).reshape(shape)


Addresses: TypeAlias = Sequence[int]


class Overlap(NamedTuple):
    """An operand and a result, by number, that have bytes in common. ``same_start``: both begin at the same address."""

    operand: int
    result: int
    same_start: bool


@dataclass(frozen=True)
class Buffers:
    """The operands and results of one rank. The other members of the group have arrays of equal shapes and types."""

    operands: tuple[Array, ...]
    results: tuple[Array, ...]

    @property
    def operand_bytes(self) -> int:
        """Return the bytes of all operands, each rounded up to a multiple of 64."""
        return sum(aligned(operand.nbytes) for operand in self.operands)

    @property
    def packed_bytes(self) -> int:
        """Return the bytes from the first operand to the end of the last, with operands at ``operand_offsets``."""
        if not self.operands:
            return 0
        return self.operand_offsets[-1] + self.operands[-1].nbytes

    @property
    def operand_offsets(self) -> list[int]:
        """Return the byte offset of each operand in memory that holds all operands of a member, such as a slot."""
        return offsets_of(self.operands)

    @cached_property
    def overlaps(self) -> tuple[Overlap, ...]:
        """Return the pairs of an operand and a result that have bytes in common, by operand, then by result.

        Operands are sorted by address, so that each result is compared with few of them.
        """
        starts = [starts_at(operand) for operand in self.operands]
        order = sorted(range(len(starts)), key=starts.__getitem__)
        sorted_starts = [starts[i] for i in order]
        ends = [starts[i] + self.operands[i].nbytes for i in order]
        furthest = list(itertools.accumulate(ends, max))
        found = []
        for k, result in enumerate(self.results):
            start = starts_at(result)
            n = bisect_left(sorted_starts, start + result.nbytes)
            while n and furthest[n - 1] > start:
                n -= 1
                if ends[n] > start:
                    found.append(Overlap(order[n], k, sorted_starts[n] == start))
        return tuple(sorted(found))

    @property
    def are_in_place(self) -> bool:
        """Return whether each result is the memory of its own operand and no two results overlap."""
        pairs = zip(self.operands, self.results, strict=True)
        each_is = all(starts_at(operand) == starts_at(result) for operand, result in pairs)
        return each_is and not any(
            itertools.starmap(overlap, itertools.combinations(self.results, 2))
        )


def offsets_of(arrays: Sequence[Array]) -> list[int]:
    """Return the byte offsets of arrays that follow each other, each at a multiple of 64 bytes."""
    sizes = [aligned(array.nbytes) for array in arrays]
    return [0, *itertools.accumulate(sizes)][: len(sizes)]


def aligned(num_bytes: int) -> int:
    """Return ``num_bytes`` rounded up to a multiple of MEMORY_ALIGNMENT."""
    return -(-num_bytes // MEMORY_ALIGNMENT) * MEMORY_ALIGNMENT


def overlap(one: Array, other: Array) -> bool:
    """Return whether two C-contiguous arrays have bytes in common."""
    return (
        starts_at(one) < starts_at(other) + other.nbytes
        and starts_at(other) < starts_at(one) + one.nbytes
    )


def starts_at(array: Array) -> int:
    """Return the address of the first byte of ``array``."""
    return int(array.ctypes.data)


def addresses_of(arrays: Iterable[Array]) -> tuple[int, ...]:
    """Return the address of the first byte of each of ``arrays``."""
    return tuple(map(starts_at, arrays))
