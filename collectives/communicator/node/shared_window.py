"""Memory that all ranks of a node map: one mapping with a segment for each rank.

Several ranks may share one segment, and with it the same memory.

The memory is an unnamed file (memfd), which the other ranks open through /proc. Therefore nothing is left behind, even
after SIGKILL; no mount limits the size (/dev/shm of a container has 64 MB); and a rank can unmap the memory on its own,
whereas freeing an MPI window needs a barrier. If the file cannot be opened or memory is short, a file in /dev/shm or in
the temporary directory replaces it. Such a file has a name only until all ranks have opened it.

Each rank reserves the pages of its segment during set-up, so that they lie on its NUMA node; ranks that share a segment
reserve equal parts. A shortage of memory is then an error message during set-up instead of a bus error later.
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
    """A source of shared memory for windows."""

    name: str

    @abstractmethod
    def create(self) -> tuple[int, str]:
        """Create an empty file. Returns its descriptor and a path for other processes to open it. Raises OSError."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the number of bytes that this provider can reserve now."""

    @abstractmethod
    def forget(self, path: str) -> None:
        """Remove the name ``path`` of a file that ``create`` made. All ranks must have opened it or given up."""


class Memory(SharedMemoryProvider):
    """Main memory, by memfd. The machine and the container limit its size, but no mount does."""

    name = "memory"

    def create(self) -> tuple[int, str]:
        descriptor = os.memfd_create("spmd", os.MFD_CLOEXEC)
        return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"

    def free_bytes(self) -> int:
        """Return the bytes that the kernel can provide without swapping and that the container's limit leaves."""
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
        """Do nothing: a memfd has no name in a file system."""


class Directory(SharedMemoryProvider):
    """Files in the directory ``path``, whose file system may be in memory or on a disk."""

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
    """The directory of temporary files. Python finds it by writing a file, so it is determined on first use."""

    def __init__(self) -> None:
        """Do nothing: ``name`` is determined on first use."""

    @cached_property
    def name(self) -> str:  # type: ignore[override]
        return tempfile.gettempdir()


def default_providers() -> tuple[SharedMemoryProvider, ...]:
    """Return the providers of shared memory, in order of preference."""
    return (Memory(), Directory("/dev/shm"), TemporaryDirectory())  # noqa: S108


@dataclass(frozen=True)
class SharedWindow:
    """This process's mapping of the segments of a node's ranks.

    ``number`` counts the windows of a rank from 1. ``base`` is the address of the mapping in this process. ``starts``
    maps each rank to the offset in bytes of its segment; ranks that share a segment have equal offsets. ``own_start``
    and ``own_bytes`` are the offset and the requested size of this rank's segment. The mapping exists as long as an
    array refers to it: a window holds only a weak reference.
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
        """Return whether the memory is still mapped."""
        return self.mapping() is not None

    def address(self, rank: int, offset: int = 0) -> int:
        """Return the address, in this process, of byte ``offset`` of the segment of ``rank``."""
        return self.base + self.starts[rank] + offset

    def sharers(self, rank: int) -> Group:
        """Return the ranks that share the segment of ``rank``, including ``rank``."""
        return tuple(r for r, start in self.starts.items() if start == self.starts[rank])

    def is_shared_in(self, group: Group) -> bool:
        """Return whether at least two ranks of ``group`` share a segment."""
        starts = [self.starts[rank] for rank in group if rank in self.starts]
        return len(set(starts)) < len(starts)

    def segment(self, rank: int, num_bytes: int) -> Array:
        """Return the first ``num_bytes`` bytes of the segment of ``rank`` as uint8. The window must be alive."""
        mapping = self.mapping()
        assert mapping is not None, "somebody holds an array of the window"
        return np.frombuffer(mapping, np.uint8)[self.starts[rank] :][:num_bytes]

    def offset_of(self, array: Array) -> int | None:
        """Return the offset in bytes of ``array`` in this rank's segment; None if the array is not contained in it."""
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
    """Open a window in memory of the first of ``providers`` that works on every node.

    Every rank of the world must call this function at the same time. Each rank chooses its own ``num_bytes``.
    ``exchange`` gathers bytes from all ranks, and ``number`` becomes the window's number. ``home`` is the rank of this
    node whose segment this rank shares; by default the rank has its own segment.

    Returns the window and this rank's segment, which is filled with zeros. Raises RunError, on every rank, with the
    reason of each provider if none works.
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
        f"no shared memory for {num_bytes} bytes per rank: {'; '.join(reasons)}. For ranks that cannot share memory "
        "with each other, set different values of SPMD_NODE_ID"
    )


@dataclass(frozen=True)
class _Layout:
    """Offsets and sizes in bytes of the ranks' segments, in whole pages. ``total`` is the size of the window."""

    starts: dict[int, int]
    sizes: dict[int, int]
    total: int

    @staticmethod
    def of(wishes: Mapping[int, Mapping[str, str | int]]) -> _Layout:
        """Lay out the segments consecutively. Each is as large as the largest request of the ranks that share it."""
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
        """Return the offset and the size in bytes of the pages that ``rank`` reserves.

        Ranks that share a segment reserve equal parts of it.
        """
        start, pages = self.starts[rank], self.sizes[rank] // mmap.PAGESIZE
        sharers = [other for other, begin in self.starts.items() if begin == start]
        index, count = sharers.index(rank), len(sharers)
        first, end = (pages * i // count * mmap.PAGESIZE for i in (index, index + 1))
        return start + first, end - first


@dataclass(frozen=True)
class _SharedFile:
    """The file that the first rank of the node has created for a window.

    ``description`` holds the data that the other ranks need to open the file, or the error if it was not created. The
    descriptor is None in the latter case.
    """

    provider: SharedMemoryProvider
    description: dict[str, str | int]
    descriptor: int | None = None

    @staticmethod
    def make(provider: SharedMemoryProvider) -> _SharedFile:
        """Create a file from ``provider``. An error is recorded in the description instead of raised."""
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
        """Remove the file's name and close this descriptor; mappings of the file stay valid."""
        if self.descriptor is not None:
            self.provider.forget(str(self.description["path"]))
            os.close(self.descriptor)


def _map(
    provider: SharedMemoryProvider, description: dict[str, str | int], layout: _Layout, rank: int
) -> tuple[mmap.mmap | None, str]:
    """Map the file of ``description`` and reserve this rank's pages. Returns (mapping, "") or (None, reason)."""
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
    """Return the window of this process's ``mapping``, and the array of the rank's ``num_bytes`` bytes in it.

    The array refers to the mapping, and so keeps it alive.
    """
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
