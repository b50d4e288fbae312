"""Memory as data: allocations, slices of them, and arrays that lie in slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from collectives.communicator.kinds import Group
from runtime.program.strides import StridedView
from spmd.memory_space import HOST

#: Every allocation starts at a multiple of this many bytes (a line of the caches, the widest vector register), and so
#: does every value in a heap that has LARGE bytes or more.
ALIGNMENT = 64
LARGE = 1024


def aligned(size: int) -> int:
    """``size`` rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def alignment_of(size: int) -> int:
    """Of which number of bytes a value of ``size`` bytes in a heap starts at a multiple.

    A small one at a multiple of the largest power of two that divides its size: its elements' size divides that, which
    is all that kernels rely on, since they read slices of arrays, too. So scalars lie side by side.
    """
    return ALIGNMENT if size >= LARGE or not size else min(size & -size, ALIGNMENT)


#: Replica groups as sets of devices, each in ascending order, by their first ones.
Groups: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, order=True)
class Color:
    """In which memory a value lies. Values of different colours share no bytes; each colour has a heap of its own.

    ``memory_space``: the n of ``S(n)`` in a layout. ``groups``: the members of each of these hold the memory together,
    once; empty where every device has its own.
    """

    memory_space: int = 0
    groups: Groups = ()

    def group_of(self, device: int) -> tuple[int, ...]:
        """Who holds ``device``'s memory of this colour."""
        return next((group for group in self.groups if device in group), (device,))


class AllocationKind(Enum):
    """What fills an allocation: the caller, once and for all the program, or (a heap) the step itself."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    HEAP = "heap"


@dataclass(frozen=True, slots=True)
class BufferAllocation:
    """``size`` bytes of a device's memory with one purpose.

    ``number``: parameter leaf, constant or heap number, by ``kind``. There is one heap of each colour, and always one
    of the default colour; temporaries and outputs lie in it. ``placement``: which algorithm found its offsets.
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
        return self.color.memory_space != HOST


@dataclass(frozen=True, slots=True)
class BufferSlice:
    """``size`` bytes from ``offset`` of allocation ``allocation``: an index, never a pointer.

    ``parts``: groups of devices, each in an order of its own. Where they are given, one such slice lies beside the
    other from ``offset`` on, one for each member of a group, and a device's is that of its place in its group.
    """

    allocation: int
    offset: int
    size: int
    parts: tuple[Group, ...] = ()

    @property
    def span(self) -> int:
        """Bytes from ``offset`` on of which some are this slice's, on whatever device."""
        return self.size * len(self.parts[0]) if self.parts else self.size

    def start_on(self, device: int) -> int:
        """Where in the allocation it begins on ``device``."""
        if not self.parts:
            return self.offset
        group = next(group for group in self.parts if device in group)
        return self.offset + self.size * group.index(device)

    def overlaps(self, other: BufferSlice) -> bool:
        """Whether the two share bytes on some device."""
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
    """An array in memory: its bytes, and how its elements lie in these; ``view.offset`` counts from the slice."""

    slice: BufferSlice
    view: StridedView


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes on one device. ``aliased`` counts outputs that lie in a parameter's buffer; they are in ``outputs`` too.

    ``temp`` is what the heaps take beside the outputs that lie in them, kernels' scratch included; ``arena`` is all of
    them. ``peak_live`` is the largest sum of bytes that are live at one time, arguments included: no assignment on this
    schedule could do with less.

    ``shared``: those bytes of ``temp`` that the members of a group hold once between them where they share memory, as
    (members of the group, bytes); ``temp`` counts them in full. ``spaces``: bytes of all allocations by memory space.
    What lies in the host's memory is counted there alone.
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
        """Every figure by a name of its own: ``shared_by_4``, and ``space_5`` where there is more than one space."""
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
        """Bytes of all heaps: temporaries, scratch and outputs that lie in no parameter's buffer."""
        return self.temp + self.outputs - self.aliased

    @property
    def peak_live_in_arena(self) -> int:
        """The least that ``arena`` could be on this schedule."""
        return self.peak_live - self.arguments

    @property
    def temp_on_a_node(self) -> int:
        """``temp`` where every group lies within a node: a device's own bytes and its part of the shared ones."""
        return self.temp - sum(size - -(-size // members) for members, size in self.shared)


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """One value's place and the positions of the schedule between which it lives, for people and dumps.

    ``output``: the entry's result leaf that it is, and whose bytes of a heap it leaves to the caller; None for others.
    """

    name: str
    shape: str
    slice: BufferSlice
    start: int
    end: int
    output: int | None = None


@dataclass(frozen=True, slots=True)
class BufferAssignment:
    """Where every value of a program lies.

    ``places``: number of the heap and offset of what lies in heaps (values that share a place count once), in order of
    the first values, and ``sizes`` a digest of their bytes; see ``recorded_heaps.py``.
    """

    allocations: tuple[BufferAllocation, ...]
    values: tuple[NamedSlice, ...]
    stats: MemoryStats
    places: tuple[tuple[int, int], ...] = ()
    sizes: str = ""

    @property
    def device_bytes(self) -> int:
        """All that lies in the device's memory."""
        return sum(a.size for a in self.allocations if a.is_on_device)

    def of_kind(self, kind: AllocationKind) -> Iterator[BufferAllocation]:
        return (a for a in self.allocations if a.kind is kind)
