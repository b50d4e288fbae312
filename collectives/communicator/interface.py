"""Interface of communicators: bind a collective to buffers once; start it and wait for it in each step.

Every device calls the same collectives in the same order (per group); the compile half proves it before
the first step. A device is a global rank: replica * num_partitions + partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from collectives.communicator.group import Array, Group
from collectives.communicator.kinds.op import Collective
from collectives.communicator.liveness.status_table import Explains
from spmd.errors import RunError


class PeerFailedError(RunError):
    """Another rank failed first; its own error says why. Carries the rank where it is known."""

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class BoundCollective(Protocol):
    """A collective on buffers that were bound to it once: started and awaited any number of times, in turn.

    Between ``start`` and the end of ``wait`` the operands must not be written, and the results neither read nor
    written, by anyone but the collective: peers may read and write them where they lie. When ``wait`` returns, or
    ``test`` has answered True, the results are complete and no peer touches this rank's buffers any more. (To memory
    from ``allocate_shared`` one may still write, but what stands there already.)
    """

    def start(self) -> None:
        """Begin, without waiting for anyone. RunError while the run before is under way."""
        ...

    def test(self) -> bool:
        """Make what progress can be made without waiting; True when it is over."""
        ...

    def wait(self) -> None:
        """Block until it is over. CollectiveTimeoutError names who is missing."""
        ...

    def complete(self) -> None:
        """``start`` and ``wait``, for those who have nothing to do in between."""
        ...


class Communicator(Protocol):
    """One device's end of the communication among all devices of a program.

    Set-up goes ``allocate`` and ``allocate_shared``, ``bind`` for each collective, ``connect``. Every rank makes the
    same calls in the same order; ``connect`` checks it where ranks are processes.
    """

    @property
    def rank(self) -> int:
        """This device, 0 <= rank < size."""
        ...

    @property
    def size(self) -> int: ...

    @property
    def cores(self) -> int:
        """The number of cores reserved for each device (>= 1): the size of its thread team. It is equal on all
        devices."""
        ...

    @property
    def spins(self) -> int:
        """The number of polls for late ranks before a thread gives up its core: few if devices outnumber cores."""
        ...

    def allocate(self, num_bytes: int) -> Array:
        """Memory for a device, as bytes: zeros, aligned to 64 bytes, freed when nobody uses the array any more.

        Collectives are fastest on arrays within it.
        """
        ...

    def allocate_shared(self, num_bytes: int, group: Group) -> Array:
        """Memory as from ``allocate``, but the very same for all of ``group`` where they reach each other's memory.

        Every rank calls it at the same time, each for the group that holds it (itself alone, if need be); groups that
        hold different ranks may ask for different sizes. Where members do not all reach one memory, each gets its own.

        It is for results that are the same for all of ``group``: those of an all-reduce, an all-gather or a
        collective-broadcast among all of these ranks, perhaps among more. Nobody else writes there. They write it
        when all have started, so a rank must have read what lay there before, by itself or as an operand, before it
        starts.
        """
        ...

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[Array],
        results: Sequence[Array],
    ) -> BoundCollective:
        """Prepare ``collective``, which must hold this rank in its group, on these arrays.

        ``operands`` and ``results`` are C-contiguous arrays, results written in place. Each result of an all-reduce, an
        all-to-all or a permute may be its operand's memory, an operand of an all-gather its own tile of the result, and
        a result of a reduce-scatter its own part of the operand, which saves bytes. ``name`` is the instruction's and
        appears in errors. To be started after ``connect``. RunError where results that differ among members lie in
        memory that these share, or where others share it.
        """
        ...

    def connect(self) -> None:
        """Join what was bound since the last time with the peers. RunError, on every rank alike, where ranks differ."""
        ...

    def note(self, text: str) -> None:
        """Leave word of what this rank does, for the message of a peer that waits for it in vain."""
        ...

    @property
    def position(self) -> memoryview:
        """Words that hold the position of this rank in its program, for peers that wait for it (status_table.py)."""
        ...

    def register_program(self, program: Explains) -> int:
        """The number, the same on every rank, of a program that is loaded and will be run; it is not kept alive."""
        ...

    def keep_to_own_cores(self) -> None:
        """Bind the calling thread to this rank's cores, if each rank of the node can have cores of its own.

        Otherwise a system that wakes a waiting thread on the core of its waker puts ranks on one core.
        """
        ...

    def barrier(self) -> None:
        """Return when every rank has called it."""
        ...

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """Gather `data` of all ranks (MPI_Allgatherv). Returns the list in rank order on every rank."""
        ...

    def gather_bytes(self, data: bytes, root: int = 0) -> list[bytes] | None:
        """Gather `data` of all ranks (MPI_Gatherv). Returns the list in rank order on `root` and None on the other
        ranks."""
        ...

    def broadcast_bytes(self, data: bytes | None, root: int = 0) -> bytes:
        """Broadcast `data` of `root` (MPI_Bcast). Returns it on every rank."""
        ...
