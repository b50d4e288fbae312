"""Interface of communicators. A collective is bound to buffers once, then started and awaited in every step.

A device is a global rank: replica * num_partitions + partition. All members of a group start the collectives of this
group in the same order, which compilation proves before the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from collectives.communicator.group import Array, Group
from collectives.communicator.kinds.op import Collective
from collectives.communicator.liveness.status_table import Explains
from spmd.errors import RunError


class PeerFailedError(RunError):
    """Error of a rank that waits for a peer which failed first. The peer's own error states the cause.

    ``rank`` is the failed rank, or None if it is unknown.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class BoundCollective(Protocol):
    """A collective that is bound to its buffers and may run any number of times, one run after the other.

    From ``start`` until ``wait`` returns or ``test`` returns True, the caller must neither write the operands nor
    access the results: peers may read and write both directly. Afterwards the results are complete, and no peer
    accesses this rank's buffers. The one exception is memory from ``allocate_shared``: a peer may still write the bytes
    that the memory already holds.
    """

    def start(self) -> None:
        """Start a run and return without waiting for a peer. Raises RunError if the previous run is still in flight."""
        ...

    def test(self) -> bool:
        """Progress the run without blocking. Returns whether the run is complete."""
        ...

    def wait(self) -> None:
        """Block until the run is complete.

        Raises CollectiveTimeoutError, which names the ranks that are missing, if the run cannot complete.
        """
        ...

    def complete(self) -> None:
        """Start a run and block until it is complete, as ``start`` and ``wait`` do with no work in between."""
        ...


class Communicator(Protocol):
    """One device's end of the communication among all devices of a program.

    Set-up consists of ``allocate`` and ``allocate_shared``, then ``bind`` for each collective, then ``connect``. Every
    rank makes the same set-up calls in the same order; ``connect`` checks this if ranks are processes.
    """

    @property
    def rank(self) -> int:
        """Return the rank of this device, 0 <= rank < size."""
        ...

    @property
    def size(self) -> int:
        """Return the number of devices."""
        ...

    @property
    def cores(self) -> int:
        """Return the number of cores reserved for each device (>= 1), which is the size of its thread team.

        The number is equal on all devices.
        """
        ...

    @property
    def spins(self) -> int:
        """Return the number of polls for late ranks before a thread yields its core.

        The number is low if devices outnumber cores.
        """
        ...

    def allocate(self, num_bytes: int) -> Array:
        """Allocate ``num_bytes`` bytes of memory for this device, filled with zeros and aligned to 64 bytes.

        The memory is freed when the last array that refers to it is released. Collectives are fastest on arrays within
        such memory. Raises RunError if there is not enough memory.
        """
        ...

    def allocate_shared(self, num_bytes: int, group: Group) -> Array:
        """Allocate memory as ``allocate`` does, but once for all members of ``group`` if all of them can address it.

        Every rank calls this function at the same time, with the group that shares the memory (the rank alone if it
        shares with no other); different groups may pass different sizes. If not all members can address one memory,
        each gets its own.

        The memory is meant for results that are equal on all members: those of an all-reduce, an all-gather or a
        collective-broadcast among at least the ranks of ``group``. No other op may write there. The members write it
        once all have started the collective, so a rank must have finished reading the previous contents before it
        starts, also those that it reads as an operand of another collective.
        """
        ...

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[Array],
        results: Sequence[Array],
    ) -> BoundCollective:
        """Bind ``collective`` to arrays. Returns the bound collective, which may be started after ``connect``.

        ``operands`` and ``results`` are C-contiguous arrays, and the collective writes the results in place. Some
        results may share memory with operands, which saves bytes: each result of an all-reduce, an all-to-all or a
        permute with its own operand, the operand of an all-gather with its own tile of the result, and the result of a
        reduce-scatter with its own part of the operand. ``name`` is the name of the instruction and appears in errors.

        Raises RunError if this rank is not in the group of ``collective``, if results that differ among members lie in
        memory that members share, or if a result lies in memory that ranks outside the group share.
        """
        ...

    def connect(self) -> None:
        """Prepare the collectives bound since the last call for their first start. Every rank calls this function.

        Raises RunError, on every rank, if members of a group have bound different collectives.
        """
        ...

    def note(self, text: str) -> None:
        """Record ``text``, which describes the activity of this rank.

        It appears in the error message of a peer whose wait for this rank times out.
        """
        ...

    @property
    def position(self) -> memoryview:
        """Return the 64-bit words in which an executor stores this rank's position in its program (status_table.py).

        Error messages of peers that wait for this rank name the position.
        """
        ...

    def register_program(self, program: Explains) -> int:
        """Register a loaded program, for error messages. Returns its number, which is equal on every rank.

        The communicator keeps only a weak reference to the program.
        """
        ...

    def keep_to_own_cores(self) -> None:
        """Bind the calling thread to this rank's cores, if each rank of the node can have cores of its own.

        Otherwise an operating system that wakes a waiting thread on the core of its waker puts several ranks on one
        core.
        """
        ...

    def barrier(self) -> None:
        """Block until every rank has called this function (MPI_Barrier)."""
        ...

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """Gather ``data`` of all ranks (MPI_Allgatherv). Returns the list in rank order on every rank."""
        ...

    def gather_bytes(self, data: bytes) -> list[bytes] | None:
        """Gather ``data`` of all ranks (MPI_Gatherv). Returns the list in rank order on rank 0, elsewhere None."""
        ...

    def broadcast_bytes(self, data: bytes) -> bytes:
        """Return ``data`` of rank 0 on every rank (MPI_Bcast). ``data`` of other ranks is ignored."""
        ...
