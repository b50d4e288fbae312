"""Memory as data: allocations, slices of them, and arrays in slices."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TypeAlias

from collectives.communicator.group import Group
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.shape import HOST_MEMORY

#: Alignment in bytes (a cache line, the widest vector register) of every allocation, and of every
#: value of LARGE bytes or more in a heap.
ALIGNMENT = 64
LARGE = 1024


def aligned(size: int) -> int:
    """Return ``size`` rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def alignment_of(size: int) -> int:
    """Return the alignment in bytes of a value of ``size`` bytes in a heap.

    A small value is aligned to the largest power of two that divides its size. The element size divides that, and
    kernels rely on no more, since they also read slices of arrays. So scalars lie next to one another.
    """
    return ALIGNMENT if size >= LARGE or not size else min(size & -size, ALIGNMENT)


#: Replica groups as sets of devices, each in ascending order, sorted by their first device.
Groups: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, order=True)
class Color:
    """Colour of a value's memory. Values of different colours share no bytes; each colour has its own heap.

    ``memory_space``: the n of ``S(n)`` in a layout. ``groups``: the members of each group share the memory; empty if
    every device has its own.
    """

    memory_space: int = 0
    groups: Groups = ()

    def group_of(self, device: int) -> tuple[int, ...]:
        """Return the devices that share ``device``'s memory of this colour."""
        return next((group for group in self.groups if device in group), (device,))


class AllocationKind(Enum):
    """Content of an allocation: set by the caller, set when the program is loaded, or (heap) written by the step."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    HEAP = "heap"


@dataclass(frozen=True, slots=True)
class BufferAllocation:
    """Allocation of ``size`` bytes of a device's memory with one purpose.

    ``number``: parameter leaf, constant or heap number, by ``kind``. There is one heap of each colour, and always one
    of the default colour; temporaries and outputs lie in it. ``placement``: name of the algorithm that chose its
    offsets.
    """

    index: int
    kind: AllocationKind
    size: int
    number: int = 0
    color: Color = Color()
    placement: str = ""

    @property
    def is_on_device(self) -> bool:
        """Return whether the allocation lies in the device's memory, and not in the host's."""
        return self.color.memory_space != HOST_MEMORY


@dataclass(frozen=True, slots=True)
class BufferSlice:
    """Slice of ``size`` bytes from ``offset`` of allocation ``allocation``: an index, never a pointer.

    ``parts``: groups of devices, each in its own order. If given, such slices follow one another from ``offset`` on,
    one for each member of a group; a device's slice is the one at its index in its group.
    """

    allocation: int
    offset: int
    size: int
    parts: tuple[Group, ...] = ()

    @property
    def span(self) -> int:
        """The number of bytes from ``offset`` on in which the slice lies, on any device."""
        return self.size * len(self.parts[0]) if self.parts else self.size

    def start_on(self, device: int) -> int:
        """Return the offset in the allocation on ``device``."""
        if not self.parts:
            return self.offset
        group = next(group for group in self.parts if device in group)
        return self.offset + self.size * group.index(device)

    def overlaps(self, other: BufferSlice) -> bool:
        """Return whether the two share bytes on some device."""
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
    """Array in memory: its slice, and the layout of its elements in it; ``view.offset`` counts from the slice."""

    slice: BufferSlice
    view: StridedView


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes on one device. ``aliased`` counts outputs that lie in a parameter's buffer; ``outputs`` includes them.

    ``temp``: bytes of the heaps without the outputs in them, including scratch of kernels; ``arena``: all bytes of the
    heaps. ``peak_live``: the maximum of live bytes, including arguments; no assignment of this schedule needs less.

    ``shared``: bytes of ``temp`` that the members of a group hold once together if they share memory, as
    (members of the group, bytes); ``temp`` counts them in full. ``spaces``: bytes of all allocations by memory space.
    Host memory is only counted there.
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
        """Return all figures by name: also ``shared_by_4``, and ``space_5`` if there is more than one space."""
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
        """The bytes of all heaps: temporaries, scratch and outputs that lie in no parameter's buffer."""
        return self.temp + self.outputs - self.aliased

    @property
    def peak_live_in_arena(self) -> int:
        """The lower bound of ``arena`` on this schedule."""
        return self.peak_live - self.arguments

    @property
    def temp_on_a_node(self) -> int:
        """The bytes of ``temp`` if every group lies within a node: own bytes and a device's part of shared ones."""
        return self.temp - sum(size - -(-size // members) for members, size in self.shared)


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """Slice and live range (schedule positions) of one value, for people and dumps.

    ``output``: the entry's result leaf that the value is; its heap bytes are left to the caller. None for other values.
    """

    name: str
    shape: str
    slice: BufferSlice
    start: int
    end: int
    output: int | None = None


@dataclass(frozen=True, slots=True)
class BufferAssignment:
    """Slices of all values of a program.

    ``offsets``: heap number and offset in bytes of the values in heaps (values that share a slice count once), in order
    of the first values; ``sizes``: a digest of their bytes; see ``recorded_heaps.py``.
    """

    allocations: tuple[BufferAllocation, ...]
    values: tuple[NamedSlice, ...]
    stats: MemoryStats
    offsets: tuple[tuple[int, int], ...] = ()
    sizes: str = ""

    @property
    def device_bytes(self) -> int:
        """The bytes of all allocations in the device's memory."""
        return sum(a.size for a in self.allocations if a.is_on_device)

    def of_kind(self, kind: AllocationKind) -> Iterator[BufferAllocation]:
        return (a for a in self.allocations if a.kind is kind)
