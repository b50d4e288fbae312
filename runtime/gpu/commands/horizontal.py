"""Horizontal fusion of launches: small independent kernels of a sequence run in one launch.

A kernel is moved up to an earlier kernel, or the earlier one down to it, past commands that neither read bytes that it
writes nor write bytes that it reads or writes. Buffers have been assigned before, so two kernels that use the same
bytes at different times are not merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.gpu.codegen.horizontal import (
    MOST_ARGUMENTS,
    MOST_PARTS,
    horizontal_source,
    is_mergeable,
)
from runtime.gpu.codegen.launch import RESIDENT_THREADS, ArgumentKind, KernelSource
from runtime.gpu.command import Action, Command, GpuProgram
from runtime.gpu.commands.collective import DoneCommand, StartCommand
from runtime.gpu.commands.kernel import GeneratedKernelCommand
from runtime.gpu.commands.kernel_command import KernelCommand
from runtime.gpu.work import HorizontalWork, KernelWork
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass

#: Largest number of groups of commands that are searched for a partner.
_LOOKBACK = 16
#: A kernel with more than this many times the threads that the GPU holds at once gains nothing from sharing a launch.
_MOST_WAVES = 4


@dataclass(frozen=True)
class HorizontalCommand(Command):
    """Kernels ``parts`` merged horizontally into one ``launch``. ``thunk`` is the thunk of the last part."""

    parts: tuple[GeneratedKernelCommand, ...]
    launch: KernelSource

    @property
    def name(self) -> str:
        names = [part.name for part in self.parts]
        return f"{names[0]}, {names[1]}" + (f" and {len(names) - 2} more" if names[2:] else "")

    def nested(self) -> Iterator[Command]:
        return iter(self.parts)

    def bind(self, device: GpuProgram) -> Action:
        works = tuple(
            KernelWork(part.kernel, part.launches, part.on_device(device)) for part in self.parts
        )
        enqueue = device.driver.load(HorizontalWork(works, self.launch))
        stream = device.stream(Stream.COMPUTE)
        return lambda: enqueue(stream)


def with_horizontal_launches(
    commands: Iterable[Command], multiprocessors: int
) -> Iterator[Command]:
    """Yield ``commands`` with small independent kernels merged into horizontal launches.

    multiprocessors: number of the GPU's streaming multiprocessors, which bounds the size of a small kernel.
    """
    most_threads = _MOST_WAVES * RESIDENT_THREADS * multiprocessors
    groups: list[_Group] = []
    starts: dict[str, StartCommand] = {}
    for command in commands:
        if isinstance(command, StartCommand):
            starts[command.name] = command
        accesses = _accesses(command, starts)
        group = _Group(
            [command], accesses, accesses is not None and _is_small(command, most_threads)
        )
        _insert(groups, group)
    for group in groups:
        yield _joined(group.commands)


@dataclass
class _Group:
    """One command, or several kernels of one launch.

    accesses: bytes that the commands access, or None if no other command may be moved past them. is_small: the group is
    one or more kernels that may be merged with others.
    """

    commands: list[Command]
    accesses: _Accesses | None
    is_small: bool

    def fits(self, other: _Group) -> bool:
        """Return whether the kernels of both groups are small and few enough for one launch, whatever they access."""
        if not (self.is_small and other.is_small):
            return False
        parts = [
            command
            for command in (*self.commands, *other.commands)
            if isinstance(command, GeneratedKernelCommand)
        ]
        arguments = sum(len(part.launches[0].arguments) for part in parts)
        return len(parts) <= MOST_PARTS and arguments <= MOST_ARGUMENTS

    def add(self, other: _Group) -> None:
        assert self.accesses is not None
        assert other.accesses is not None
        self.commands += other.commands
        self.accesses = self.accesses.union(other.accesses)


def _insert(groups: list[_Group], new: _Group) -> None:
    """Merge ``new`` into one of the last ``groups``, or append it.

    If ``new`` can be moved up to the group, the merged group stays at the group's position. Otherwise, if the group can
    be moved down, the merged group is the last one.
    """
    if not new.is_small:
        groups.append(new)
        return
    moves = True  # ``new`` conflicts with none of the groups searched so far
    for n in range(len(groups) - 1, max(-1, len(groups) - 1 - _LOOKBACK), -1):
        group = groups[n]
        if group.accesses is None:
            break
        is_free = not _conflict(group, new)
        if is_free and group.fits(new):
            if moves:
                group.add(new)
                return
            if not any(_conflict(group, passed) for passed in groups[n + 1 :]):
                del groups[n]
                group.add(new)
                groups.append(group)
                return
        moves = moves and is_free
    groups.append(new)


def _conflict(one: _Group, other: _Group) -> bool:
    if one.accesses is None or other.accesses is None:
        return True
    return one.accesses.conflicts_with(other.accesses)


def _is_small(command: Command, most_threads: int) -> bool:
    if not isinstance(command, GeneratedKernelCommand) or len(command.launches) != 1:
        return False
    (launch,) = command.launches
    return is_mergeable(launch) and launch.blocks * launch.threads <= most_threads


def _joined(commands: Sequence[Command]) -> Command:
    if len(commands) == 1:
        return commands[0]
    parts = tuple(command for command in commands if isinstance(command, GeneratedKernelCommand))
    first = dict.fromkeys(ArgumentKind, 0)
    sources = []
    for part in parts:
        (source,) = part.launches
        moved = (replace(a, number=first[a.kind] + a.number) for a in source.arguments)
        sources.append(replace(source, arguments=tuple(moved)))
        first[ArgumentKind.OPERAND] += len(part.operands)
        first[ArgumentKind.RESULT] += len(part.results)
        first[ArgumentKind.SCRATCH] += len(part.scratch)
    return HorizontalCommand(parts[-1].thunk, parts, horizontal_source(sources))


# ---- memory
@dataclass(frozen=True)
class _Accesses:
    """Sets of bytes that commands read and write."""

    reads: _Bytes
    writes: _Bytes

    def conflicts_with(self, other: _Accesses) -> bool:
        """Return whether one writes bytes that the other reads or writes, so that their order must be preserved."""
        return (
            self.writes.overlaps(other.writes)
            or self.writes.overlaps(other.reads)
            or self.reads.overlaps(other.writes)
        )

    def union(self, other: _Accesses) -> _Accesses:
        return _Accesses(self.reads.union(other.reads), self.writes.union(other.writes))


@dataclass(frozen=True)
class _Bytes:
    """Set of bytes, as ascending ranges (allocation, begin, end) that neither overlap nor touch."""

    ranges: tuple[tuple[int, int, int], ...]

    @staticmethod
    def of(slices: Iterable[BufferSlice]) -> _Bytes:
        return _Bytes.merged([(s.allocation, s.offset, s.offset + s.span) for s in slices])

    @staticmethod
    def merged(ranges: Iterable[tuple[int, int, int]]) -> _Bytes:
        found: list[tuple[int, int, int]] = []
        for allocation, begin, end in sorted(ranges):
            if found and found[-1][0] == allocation and begin <= found[-1][2]:
                found[-1] = (allocation, found[-1][1], max(end, found[-1][2]))
            elif begin < end:
                found.append((allocation, begin, end))
        return _Bytes(tuple(found))

    def union(self, other: _Bytes) -> _Bytes:
        return _Bytes.merged((*self.ranges, *other.ranges))

    def overlaps(self, other: _Bytes) -> bool:
        one, two = iter(self.ranges), iter(other.ranges)
        a, b = next(one, None), next(two, None)
        while a is not None and b is not None:
            if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]:
                return True
            if (a[0], a[2]) <= (b[0], b[2]):
                a = next(one, None)
            else:
                b = next(two, None)
        return False


def _accesses(command: Command, starts: dict[str, StartCommand]) -> _Accesses | None:
    """Return the bytes that a kernel or a collective accesses, or None if no command may be moved past ``command``.

    The done of a collective counts as a write of the collective's operands and results.
    """
    if command.decides:
        return None
    if isinstance(command, KernelCommand):
        return _of(command.operands, (*command.results, *command.scratch))
    if isinstance(command, DoneCommand):
        start = starts.get(command.start)
        return None if start is None else _of((), (*start.operands, *start.results))
    if isinstance(command, StartCommand):
        return _of(command.operands, command.results)
    return None


def _of(reads: Iterable[ArrayView], writes: Iterable[ArrayView]) -> _Accesses:
    return _Accesses(
        _Bytes.of(array.slice for array in reads), _Bytes.of(array.slice for array in writes)
    )
