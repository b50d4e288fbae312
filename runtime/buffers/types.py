"""Data structures of buffer assignment: allocations, slices of allocations, and arrays in slices."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TypeAlias

from collectives.communicator.group import Group
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.shape import HOST_MEMORY

#: Alignment in bytes (a cache line, the widest vector register) of every allocation, and of every value of LARGE bytes
#: or more in a heap.
ALIGNMENT = 64
LARGE = 1024


def aligned(size: int) -> int:
    """Return ``size`` rounded up to a multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def alignment_of(size: int) -> int:
    """Return the alignment in bytes of a value of ``size`` bytes in a heap.

    A small value is aligned to the largest power of two that divides its size, which is a multiple of the element size.
    Kernels require no more, since they also read slices of arrays. Scalars are therefore adjacent.
    """
    return ALIGNMENT if size >= LARGE or not size else min(size & -size, ALIGNMENT)


#: Replica groups: devices of each group in ascending order, groups sorted by their first device.
Groups: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, order=True)
class Color:
    """Colour of a value's memory. Values of different colours share no bytes, and each colour has its own heap.

    memory_space: the n of ``S(n)`` in a layout. groups: replica groups whose members share the memory; empty if the
    memory is private to each device.
    """

    memory_space: int = 0
    groups: Groups = ()

    def group_of(self, device: int) -> tuple[int, ...]:
        """Return the devices that share memory of this colour with ``device``, including ``device``."""
        return next((group for group in self.groups if device in group), (device,))


class AllocationKind(Enum):
    """Kind of an allocation, by its writer: the caller (PARAMETER), loading (CONSTANT) or the step (HEAP)."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    HEAP = "heap"


@dataclass(frozen=True, slots=True)
class BufferAllocation:
    """Allocation of ``size`` bytes of a device's memory with one purpose.

    number: number of the parameter leaf, constant or heap, by ``kind``. Temporaries and outputs are in heaps: there is
    one heap for each colour, and always one of the default colour. placement: name of the algorithm that chose the
    offsets in a heap.
    """

    index: int
    kind: AllocationKind
    size: int
    number: int = 0
    color: Color = Color()
    placement: str = ""

    @property
    def is_on_device(self) -> bool:
        """Return whether the allocation is in the device's memory, and not in the host's."""
        return self.color.memory_space != HOST_MEMORY


@dataclass(frozen=True, slots=True)
class BufferSlice:
    """Slice of ``size`` bytes at ``offset`` in the allocation with index ``allocation``.

    parts: groups of devices. If it is not empty, ``offset`` is that of a sequence of adjacent slices, one for each
    member of a group, and a device's slice is the one at its index in its group.
    """

    allocation: int
    offset: int
    size: int
    parts: tuple[Group, ...] = ()

    @property
    def span(self) -> int:
        """Return the number of bytes from ``offset`` on that contain the slices of all devices."""
        return self.size * len(self.parts[0]) if self.parts else self.size

    def start_on(self, device: int) -> int:
        """Return the offset of the slice of ``device`` in the allocation."""
        if not self.parts:
            return self.offset
        group = next(group for group in self.parts if device in group)
        return self.offset + self.size * group.index(device)

    def overlaps(self, other: BufferSlice) -> bool:
        """Return whether this slice and ``other`` may share bytes on some device."""
        return (
            self.allocation == other.allocation
            and self.offset < other.offset + other.span
            and other.offset < self.offset + self.span
        )

    def __str__(self) -> str:
        own = f", one for each of {len(self.parts[0])}" if self.parts else ""
        return f"{{{self.allocation}: {self.offset}+{self.size}{own}}}"


@dataclass(frozen=True, slots=True)
class ArrayView:
    """Array in memory: its slice, and the strided view of its elements. ``view.offset`` is relative to the slice."""

    slice: BufferSlice
    view: StridedView


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Memory figures of a program in bytes on one device.

    arguments: parameters. outputs: outputs, including aliased ones. aliased: outputs in a parameter's buffer. temp:
    heaps without the outputs in them, including scratch of kernels. peak_live: maximum of live bytes, including
    arguments; no assignment of this schedule needs less. constants: constants.

    shared: pairs (members of a group, bytes) of the bytes of ``temp`` that a group stores once if its members share
    memory; ``temp`` counts these bytes in full. spaces: pairs (memory space, bytes) of all allocations. Host memory is
    counted only in ``spaces``.
    """

    arguments: int
    outputs: int
    aliased: int
    temp: int
    peak_live: int
    constants: int = 0
    shared: tuple[tuple[int, int], ...] = ()
    spaces: tuple[tuple[int, int], ...] = ()

    def figures(self) -> dict[str, int]:
        """Return all figures by name.

        ``shared`` is given as ``shared_by_4`` and so on, and ``spaces`` as ``space_5`` and so on if there are several.
        """
        shared = {f"shared_by_{members}": size for members, size in self.shared}
        spaces = {f"space_{space}": size for space, size in self.spaces}
        return {
            "arguments": self.arguments,
            "outputs": self.outputs,
            "aliased": self.aliased,
            "temp": self.temp,
            "peak_live": self.peak_live,
            "constants": self.constants,
            **shared,
            **(spaces if len(spaces) > 1 else {}),
        }

    @property
    def arena(self) -> int:
        """Return the bytes of all heaps: temporaries, scratch, and outputs that are in no parameter's buffer."""
        return self.temp + self.outputs - self.aliased

    @property
    def peak_live_in_arena(self) -> int:
        """Return the lower bound of ``arena`` for this schedule."""
        return self.peak_live - self.arguments

    @property
    def temp_on_a_node(self) -> int:
        """Return the bytes of ``temp`` per device if every group is within a node.

        They are the private bytes and the device's fraction of the shared bytes.
        """
        return self.temp - sum(size - -(-size // members) for members, size in self.shared)


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """Slice and live range (schedule positions) of one value, for dumps and reports.

    output: number of the entry's result leaf that the value is, whose bytes the caller owns after the step; None for
    other values.
    """

    name: str
    shape: str
    slice: BufferSlice
    start: int
    end: int
    output: int | None = None


@dataclass(frozen=True, slots=True)
class BufferAssignment:
    """Buffer assignment of a program: its allocations, and the slices of all values.

    offsets: heap number and offset in bytes of each group of values in a heap, in the order of their first values.
    sizes: digest of the sizes of these groups (``heap/recorded_heaps.py``).
    """

    allocations: tuple[BufferAllocation, ...]
    values: tuple[NamedSlice, ...]
    stats: MemoryStats
    offsets: tuple[tuple[int, int], ...] = ()
    sizes: str = ""

    @property
    def device_bytes(self) -> int:
        """Return the bytes of all allocations in the device's memory."""
        return sum(a.size for a in self.allocations if a.is_on_device)

    def of_kind(self, kind: AllocationKind) -> Iterator[BufferAllocation]:
        """Return the allocations of ``kind``, by index."""
        return (a for a in self.allocations if a.kind is kind)
