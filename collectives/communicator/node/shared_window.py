"""Memory that all ranks of a node map: a segment for each rank, in one mapping.

Several ranks may live in one segment: then that memory is theirs together.

The memory is a file without a name (memfd), which the others open through /proc: so nothing is ever left behind, even
by SIGKILL, no mount limits its size (a container's /dev/shm has 64 MB), and a rank drops its mapping when it likes, by
itself: freeing needs no barrier, as an MPI window would. Where that cannot be opened, or memory is short, a file in
/dev/shm or in the temporary directory takes its place; it has a name only until all have opened it.

Every page is reserved at set-up, by the rank that owns it (so that it lies on that rank's NUMA node; ranks that live
together reserve equal parts): too little room is an error message there, and never a bus error later.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from collectives.communicator.group import Array, Group
from collectives.communicator.node.node import ByteExchange, Node
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass


class SharedMemoryProvider(ABC):
    """Provider of the memory of a window."""

    name: str

    @abstractmethod
    def create(self) -> tuple[int, str]:
        """A new empty file: its descriptor, and a path by which other processes open it. OSError."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the bytes that may be reserved there now."""

    @abstractmethod
    def forget(self, path: str) -> None:
        """Everyone has opened the file: take its name away."""


class Memory(SharedMemoryProvider):
    """Memory of the machine, limited by nothing else."""

    name = "memory"

    def create(self) -> tuple[int, str]:
        descriptor = os.memfd_create("spmd", os.MFD_CLOEXEC)
        return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"

    def free_bytes(self) -> int:
        """Return the bytes that the kernel can give without swapping and that the container may still take."""
        available = Path("/proc/meminfo").read_text(encoding="ascii").partition("MemAvailable:")[2]
        free = int(available.split()[0]) * 1024
        group = Path("/sys/fs/cgroup")
        try:
            limit = (group / "memory.max").read_text(encoding="ascii").strip()
            used = (group / "memory.current").read_text(encoding="ascii")
        except OSError:
            return free
        return free if limit == "max" else min(free, int(limit) - int(used))

    def forget(self, path: str) -> None:
        """It never had a name of its own."""


class Directory(SharedMemoryProvider):
    """A file in ``path``, which is a file system in memory or on a disk."""

    def __init__(self, path: str) -> None:
        self.name = path

    def create(self) -> tuple[int, str]:
        return tempfile.mkstemp(prefix="spmd-memory-", dir=self.name)

    def free_bytes(self) -> int:
        status = os.statvfs(self.name)
        return status.f_bavail * status.f_frsize

    def forget(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


class TemporaryDirectory(Directory):
    """Directory of temporary files. Python finds it by writing one, so it is asked only when it is needed."""

    def __init__(self) -> None:
        """Nothing yet."""

    @cached_property
    def name(self) -> str:  # type: ignore[override]
        return tempfile.gettempdir()


def default_providers() -> tuple[SharedMemoryProvider, ...]:
    return (Memory(), Directory("/dev/shm"), TemporaryDirectory())  # noqa: S108


@dataclass(frozen=True)
class SharedWindow:
    """This process's mapping of a node's segments.

    ``starts``: where each rank's segment begins; at the same place for those that live in one. ``own``: this rank's
    segment, zeros at first. The mapping lives as long as somebody holds an array in it; a window itself does not keep
    it.
    """

    number: int
    provider: str
    base: int
    starts: dict[int, int]
    own_start: int
    own_bytes: int
    mapping: weakref.ref[mmap.mmap]

    @property
    def is_alive(self) -> bool:
        return self.mapping() is not None

    def address(self, rank: int, offset: int = 0) -> int:
        """Return the address of byte ``offset`` of ``rank`` in this process."""
        return self.base + self.starts[rank] + offset

    def sharers(self, rank: int) -> Group:
        """Return the ranks in ``rank``'s segment, itself included."""
        return tuple(r for r, start in self.starts.items() if start == self.starts[rank])

    def is_shared_in(self, group: Group) -> bool:
        """Return whether two of ``group`` live in one segment."""
        starts = [self.starts[rank] for rank in group if rank in self.starts]
        return len(set(starts)) < len(starts)

    def segment(self, rank: int, num_bytes: int) -> Array:
        """The first bytes of ``rank``'s segment."""
        mapping = self.mapping()
        assert mapping is not None, "somebody holds an array of the window"
        return np.frombuffer(mapping, np.uint8)[self.starts[rank] :][:num_bytes]

    def offset_of(self, array: Array) -> int | None:
        """Return the offset of ``array`` in this rank's segment; None if it does not lie in it."""
        offset = array.ctypes.data - self.base - self.own_start
        inside = self.is_alive and offset >= 0 and offset + array.nbytes <= self.own_bytes
        return offset if inside else None


def open_window(
    exchange: ByteExchange,
    node: Node,
    rank: int,
    num_bytes: int,
    number: int,
    providers: Sequence[SharedMemoryProvider],
    home: int | None = None,
) -> tuple[SharedWindow, Array]:
    """A window in the first place that serves every node, and this rank's segment of it.

    Every rank of the world calls it, each for as many bytes as it wants. RunError, on all alike, with every place's
    reason where none will do.

    home: the rank of this node in whose segment this one lives; by default it has one of its own.
    """
    wanted = -(-max(num_bytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    reasons = []
    for provider in providers:
        shared_file = _SharedFile.make(provider) if rank == node.ranks[0] else None
        description = {
            "bytes": wanted,
            "home": rank if home is None else home,
            **(shared_file.description if shared_file else {}),
        }
        everyone = [json.loads(data) for data in exchange(json.dumps(description).encode())]
        layout = _Layout.of({r: everyone[r] for r in node.ranks})
        mapping, reason = _map(provider, everyone[node.ranks[0]], layout, rank)
        failures = [data.decode() for data in exchange(reason.encode())]
        if shared_file is not None:
            shared_file.withdraw()
        if mapping is not None and not any(failures):
            return _window(mapping, provider, layout, rank, num_bytes, number)
        reasons.append(next(filter(None, failures)))
    raise RunError(
        f"no memory to share for {num_bytes} bytes a rank: {'; '.join(reasons)}. Ranks that cannot share memory "
        "are told apart by SPMD_NODE_ID, one value for each node"
    )


@dataclass(frozen=True)
class _Layout:
    """Segments of the ranks: where each begins, and its bytes, in whole pages."""

    starts: dict[int, int]
    sizes: dict[int, int]
    total: int

    @staticmethod
    def of(wishes: Mapping[int, Mapping[str, str | int]]) -> _Layout:
        """One segment after the other, each as large as the largest wish of those who live there."""
        homes = {rank: int(wish["home"]) for rank, wish in wishes.items()}
        sizes = dict.fromkeys(homes, 0)
        for rank, home in homes.items():
            sizes[home] = max(sizes[home], int(wishes[rank]["bytes"]))
        starts = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
        return _Layout(
            {rank: starts[home] for rank, home in homes.items()},
            {rank: sizes[home] for rank, home in homes.items()},
            sum(sizes.values()),
        )

    def share_of(self, rank: int) -> tuple[int, int]:
        """Return the offset and the bytes of the pages that ``rank`` reserves: an equal part of a segment that several
        ranks share."""
        start, pages = self.starts[rank], self.sizes[rank] // mmap.PAGESIZE
        sharers = [other for other, begin in self.starts.items() if begin == start]
        index, count = sharers.index(rank), len(sharers)
        first, end = (pages * i // count * mmap.PAGESIZE for i in (index, index + 1))
        return start + first, end - first


@dataclass(frozen=True)
class _SharedFile:
    """A file that the node's first rank has made: what it tells the others, or why there is none."""

    provider: SharedMemoryProvider
    description: dict[str, str | int]
    descriptor: int | None = None

    @staticmethod
    def make(provider: SharedMemoryProvider) -> _SharedFile:
        try:
            descriptor, path = provider.create()
            status = os.fstat(descriptor)
            description: dict[str, str | int] = {
                "path": path,
                "device": status.st_dev,
                "inode": status.st_ino,
            }
            return _SharedFile(provider, {**description, "free": provider.free_bytes()}, descriptor)
        except (OSError, AttributeError) as error:  # no memfd on this system
            return _SharedFile(provider, {"error": str(error)})

    def withdraw(self) -> None:
        if self.descriptor is not None:
            self.provider.forget(str(self.description["path"]))
            os.close(self.descriptor)


def _map(
    provider: SharedMemoryProvider, description: dict[str, str | int], layout: _Layout, rank: int
) -> tuple[mmap.mmap | None, str]:
    """This rank's mapping of the offered file, or None and why there is none."""
    total = layout.total
    if "error" in description:
        return None, f"{provider.name}: {description['error']}"
    if int(description["free"]) < total:
        return None, f"{provider.name} has {description['free']} bytes free, {total} are needed"
    try:
        descriptor = os.open(str(description["path"]), os.O_RDWR | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != (description["device"], description["inode"]):
                return (
                    None,
                    f"{provider.name}: rank {rank} sees another file at {description['path']}",
                )
            os.ftruncate(descriptor, total)
            first, num_bytes = layout.share_of(rank)
            if num_bytes:
                os.posix_fallocate(descriptor, first, num_bytes)
            return mmap.mmap(descriptor, total), ""
        finally:
            os.close(descriptor)
    except OSError as error:
        return None, f"{provider.name}: rank {rank}: {error}"


def _window(
    mapping: mmap.mmap,
    provider: SharedMemoryProvider,
    layout: _Layout,
    rank: int,
    num_bytes: int,
    number: int,
) -> tuple[SharedWindow, Array]:
    memory = np.frombuffer(mapping, np.uint8)
    start = layout.starts[rank]
    window = SharedWindow(
        number,
        provider.name,
        memory.ctypes.data,
        layout.starts,
        start,
        num_bytes,
        weakref.ref(mapping),
    )
    return window, memory[start : start + num_bytes]
