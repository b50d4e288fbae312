"""Communicator whose devices are MPI ranks.

Only the upper-case methods of mpi4py are used, which send bytes and arrays and never pickled objects.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from collectives.communicator.actions.array_actions import Copy
from collectives.communicator.actions.engine import CollectiveEngine
from collectives.communicator.actions.shared_buffers import Buffers, private_memory
from collectives.communicator.group import Array, Group, describe_group, require_in
from collectives.communicator.interface import BoundCollective
from collectives.communicator.kinds.op import Collective
from collectives.communicator.liveness.stall_detector import StallDetector
from collectives.communicator.liveness.status_table import (
    ALL_RANKS,
    NO_RANK,
    ROW_BYTES,
    Explains,
    RankState,
    StatusTable,
)
from collectives.communicator.messages.message_setup import MessageSetup
from collectives.communicator.mpi.messages import GroupLink, MessageCollective
from collectives.communicator.native_collective import NativeCollective
from collectives.communicator.node.barrier import BARRIER_BYTES, NodeBarrier
from collectives.communicator.node.node import default_node_id, find_nodes
from collectives.communicator.node.node_memory import NodeMemory
from collectives.communicator.node.shared_window import SharedMemoryProvider, default_providers
from collectives.communicator.wait_context import InFlightSet, ask_while, poll_until, poll_while
from spmd.errors import CollectiveTimeoutError, RunError

_START_SECONDS = 120.0
"""Least timeout of waits during start-up, while no status table shows the progress of ranks."""

_BARRIER_TAG = 1
"""Tag of the messages by which the members of a new group wait for each other."""


class MpiCommunicator:
    """The Communicator of one MPI rank. All ranks create it together and close it together."""

    def __init__(
        self,
        timeout_seconds: float = 300.0,
        *,
        engine: CollectiveEngine | None = None,
        node_id: str | None = None,
        memory_providers: Sequence[SharedMemoryProvider] | None = None,
        notify: Callable[[str], None] = lambda _: None,
        binds_ranks: bool = True,
    ) -> None:
        """Create the communicator of this rank. All ranks of MPI_COMM_WORLD must call it.

        timeout_seconds: time for which a rank waits for ranks that make no progress.
        engine: runs collectives in native code; without an engine, Python carries all collectives by messages.
        node_id: ranks with equal ids share memory; by default an id of the host and its boot.
        memory_providers: sources of shared memory, in order of preference.
        notify: called on the first rank of each node with messages for the user about shared memory.
        binds_ranks: let ``keep_to_own_cores`` bind the rank to cores of its own.

        Raises CollectiveTimeoutError if not all ranks start in time.
        """
        self._binds_ranks = binds_ranks
        #: Until the status table exists, no rank sees the progress of the others.
        self.timeout_seconds = max(timeout_seconds, _START_SECONDS)
        all_ranks = MPI.COMM_WORLD
        if not poll_until(all_ranks.Ibarrier().Test, self.timeout_seconds):
            raise CollectiveTimeoutError(
                f"[rank {all_ranks.rank}/{all_ranks.size}] not all ranks have started within "
                f"{self.timeout_seconds:g} s"
            )
        self._world = all_ranks.Dup()
        self._groups: dict[Group, GroupLink] = {}
        self.in_flight = InFlightSet()
        self._node_barrier: NodeBarrier | None = None
        self._status = StatusTable(self.rank, {self.rank: private_memory(ROW_BYTES)})
        nodes = find_nodes(self.all_gather_bytes, self.rank, node_id or default_node_id())
        self.nodes, node = nodes, nodes.own
        #: Number of cores that each rank can use alone, at least 1.
        self.cores = nodes.cores_of_each
        if self.rank != node.ranks[0]:
            notify = _discard
        self._memory = NodeMemory(
            self,
            self.all_gather_bytes,
            node,
            engine,
            memory_providers or default_providers(),
            notify,
        )
        try:
            # ``_own`` keeps the mapping until the rows do.
            window, _own = self._memory.open(ROW_BYTES + BARRIER_BYTES)
        except RunError as error:
            self._memory.disable_shared_memory()
            shared = None
            notify(f"collectives use MPI messages instead of shared memory: {error}")
        else:
            shared = self._memory.open
            rows = {rank: window.segment(rank, ROW_BYTES) for rank in node.ranks}
            self._status = StatusTable(self.rank, rows)
            if nodes.count == 1:
                self._node_barrier = self._memory.node_barrier(window, ROW_BYTES)
        self._messages = MessageSetup(
            self.all_gather_bytes, nodes, self.rank, engine, shared, notify
        )
        self._complete(self._world.Ibarrier(), "the start")  # the rows of all ranks can be read
        self.timeout_seconds = timeout_seconds

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def size(self) -> int:
        return self._world.size

    @property
    def spins(self) -> int:
        return self._memory.spins

    def allocate(self, num_bytes: int) -> Array:
        return self._memory.allocate(num_bytes)

    def allocate_shared(self, num_bytes: int, group: Group) -> Array:
        require_in(self.rank, group, "memory to share")
        return self._memory.allocate_shared(num_bytes, group)

    def bind(
        self, collective: Collective, name: str, operands: Sequence[Array], results: Sequence[Array]
    ) -> BoundCollective:
        require_in(self.rank, collective.group, name)
        buffers = Buffers(tuple(operands), tuple(results))
        for array in (*operands, *results):
            if not array.flags.c_contiguous:
                raise RunError(f"{name}: a buffer of shape {array.shape} is not contiguous")

        def by_messages(between: Buffers, last: Sequence[Copy]) -> BoundCollective:
            channel = self._link(collective.group).channel(max(len(between.operands), 1))
            if not self._messages.can_carry(collective, between):
                actions = collective.message_actions(self.rank, between.operands, between.results)
                return MessageCollective(self, channel, name, (*actions, *last))
            bound = NativeCollective(
                self, collective, name, between, self.spins, needs_progress=True
            )
            self._messages.bind(bound, channel, last)
            return bound

        self._messages.count()
        return self._memory.bind(collective, name, buffers, by_messages)

    def connect(self) -> None:
        self._memory.connect()
        self._messages.connect()

    def note(self, text: str) -> None:
        self._status.note(text)

    def prepared_note(self, text: str) -> Callable[[], None]:
        return self._status.prepared(text)

    @property
    def position(self) -> memoryview:
        return self._status.position

    def register_program(self, program: Explains) -> int:
        return self._status.register_program(program)

    def set_rank_state(self, state: RankState) -> None:
        """Publish the state of this rank's process in the node's status table."""
        self._status.set_rank_state(state)

    def has_failed_peer(self) -> bool:
        """Return whether another rank of this node has recorded that it reports why the job ends."""
        others = (rank for rank in self._status.ranks if rank != self.rank)
        return any(self._status.rank_state(rank) is RankState.FAILED for rank in others)

    def lost_peers(self) -> dict[int, str]:
        """Return the ranks of this node whose processes ended while they were running, with their last positions."""
        return {
            rank: self._status.last_position(rank)
            for rank in self._status.ranks
            if self._status.rank_state(rank) is RankState.RUNNING
            and (process := self._status.process(rank)) is not None
            and process.is_dead()
        }

    def keep_to_own_cores(self) -> None:
        cores = self._memory.node.own_cores
        if cores and self._binds_ranks:
            with contextlib.suppress(OSError):  # a sandbox may forbid it
                os.sched_setaffinity(0, cores)

    def barrier(self) -> None:
        if self._node_barrier is None:
            self._complete(self._world.Ibarrier(), "a barrier")
        else:
            self._status.meets_all()
            self._pass(self._node_barrier, "a barrier among all ranks", "finish", "")

    def _pass(self, node_barrier: NodeBarrier, what: str, verb: str, lack: str) -> None:
        """Pass ``node_barrier``. Raises CollectiveTimeoutError if the other ranks stall.

        ``what``, ``verb`` and ``lack`` are texts of the error (``_watch_for_stalls``).
        """
        if node_barrier.enter():
            return
        others = [rank for rank in range(self.size) if rank != self.rank]

        def through() -> bool:
            self._world.Iprobe()  # has MPI progress pending messages
            return node_barrier.wait()

        detector = StallDetector(self._status, node_barrier.late, self.timeout_seconds, others)
        self._watch_for_stalls(detector, through, what, verb, lack, ask_while)

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        lengths = self._gather_lengths(data)
        joined = bytearray(int(lengths.sum()))
        request = self._world.Iallgatherv([data, MPI.BYTE], [joined, lengths, MPI.BYTE])
        self._complete(request, "an exchange of bytes")
        return _split_bytes(joined, lengths)

    def gather_bytes(self, data: bytes) -> list[bytes] | None:
        lengths = self._gather_lengths(data)
        joined = bytearray(int(lengths.sum()) if self.rank == 0 else 0)
        receive = [joined, lengths, MPI.BYTE] if self.rank == 0 else None
        self._complete(self._world.Igatherv([data, MPI.BYTE], receive), "a gather of bytes")
        return _split_bytes(joined, lengths) if self.rank == 0 else None

    def broadcast_bytes(self, data: bytes) -> bytes:
        length = int(self._gather_lengths(data)[0])
        buffer = bytearray(data) if self.rank == 0 else bytearray(length)
        self._complete(self._world.Ibcast([buffer, MPI.BYTE]), "a broadcast of bytes")
        return bytes(buffer)

    def final_barrier(self, seconds: float) -> None:
        """Wait until every rank has called this method, for ``seconds`` at most.

        Raises CollectiveTimeoutError after that time even if the other ranks make progress. The ranks are then no
        longer synchronized, so the process can only end.
        """
        self._status.meets_all()
        if poll_until(self._world.Ibarrier().Test, seconds):
            return
        absent = self._status.absent(self.rank)
        raise CollectiveTimeoutError(
            f"[rank {self.rank}/{self.size}] not all ranks have reached the end of the job within {seconds:g} s "
            f"({self._last_positions(absent)})"
        )

    def abort(self, exit_code: int) -> None:
        """End every process of the job now (MPI_Abort). The launcher exits with ``exit_code``, which must not be 0."""
        self._world.Abort(exit_code)

    def close(self) -> None:
        """Free the MPI communicators, in the order in which they were created.

        Every rank must call it, and no collective may be in flight.
        """
        for link in self._groups.values():
            link.comm.Free()
        self._groups.clear()
        self._world.Free()

    def _last_positions(self, ranks: Sequence[int]) -> str:
        """Return a text with the last positions of the first 8 of ``ranks``."""
        return "; ".join(f"rank {rank} {self._status.last_position(rank)}" for rank in ranks[:8])

    def _gather_lengths(self, data: bytes) -> Array:
        """Return the lengths of the ``data`` of all ranks."""
        lengths = np.empty(self.size, np.int64)
        request = self._world.Iallgather(np.array([len(data)], np.int64), lengths)
        self._complete(request, "an exchange of sizes")
        return lengths

    def _complete(self, request: MPI.Request, what: str) -> None:
        """Wait for ``request``, a nonblocking collective of all ranks that ``what`` describes.

        Raises CollectiveTimeoutError, with the last positions of the ranks that hold it up, if they stall.
        """
        self._status.meets_all()
        if request.Test():
            return
        others = [rank for rank in range(self.size) if rank != self.rank]
        status = self._status
        absent = partial(status.absent, self.rank)
        detector = StallDetector(status, absent, self.timeout_seconds, others, ALL_RANKS)
        self._watch_for_stalls(detector, request.Test, f"{what} among all ranks", "finish", "")

    def _await_members(self, group: Group) -> None:
        """Wait until every member of ``group`` has called this method.

        MPI_Comm_create_group would wait for a missing member forever; this wait raises CollectiveTimeoutError.
        """
        others = [rank for rank in group if rank != self.rank]
        token = np.zeros(1, np.uint8)
        arrivals = {
            rank: self._world.Irecv(np.empty(1, np.uint8), rank, _BARRIER_TAG) for rank in others
        }
        calls = [self._world.Isend(token, rank, _BARRIER_TAG) for rank in others]
        requests = [*arrivals.values(), *calls]
        self.wait_until(
            lambda: MPI.Request.Testall(requests),
            "the first collective of a group",
            group,
            lambda: [rank for rank, arrival in arrivals.items() if not arrival.Test()],
        )

    def wait_until(
        self, done: Callable[[], bool], what: str, group: Group, late: Callable[[], Sequence[int]]
    ) -> None:
        others = [rank for rank in group if rank != self.rank]
        self.note(f"waits in {what}")
        detector = StallDetector(self._status, late, self.timeout_seconds, others)
        description = f"{what}: group {describe_group(group)}"
        self._watch_for_stalls(detector, done, description, "complete", "nothing received from ")
        self.note(f"has passed {what}")

    def _watch_for_stalls(
        self,
        detector: StallDetector,
        done: Callable[[], bool],
        what: str,
        verb: str,
        lack: str,
        wait_while: Callable[[Callable[[], bool], Callable[[], bool]], bool] = poll_while,
    ) -> None:
        """Wait until ``done`` returns True. Raises CollectiveTimeoutError if ``detector`` finds a stall.

        The error says that ``what`` cannot, or did not, ``verb``. Unless ``lack`` is empty, the late ranks follow it.
        ``wait_while`` calls ``done`` repeatedly for as long as the detector's ``poll`` returns True.
        """
        try:
            came = wait_while(done, detector.poll)
        finally:
            self._status.waits_for(NO_RANK)
        if came:
            return
        limit = "cannot " + verb
        if not detector.gone:
            limit = f"did not {verb} within {self.timeout_seconds:g} s"
        missing = f": {lack}{describe_group(detector.late)}" if lack else ""
        named = tuple(dict.fromkeys((*detector.culprits, *(detector.late if lack else ()))))
        raise CollectiveTimeoutError(
            f"[rank {self.rank}/{self.size}] {what} {limit}{missing} ({self._last_positions(named)})"
        )

    def _link(self, group: Group) -> GroupLink:
        """Return the MPI communicator of ``group``, which its members create together on first use."""
        link = self._groups.get(group)
        if link is None:
            self._await_members(group)
            # Only the members take part in the creation, and all of them create groups in program order.
            members = self._world.Get_group().Incl(group)
            link = GroupLink(self._world.Create_group(members), group)
            members.Free()
            self._groups[group] = link
        return link


def end_all_ranks(exit_code: int) -> None:
    """End every process of the job (MPI_Abort). It serves while there is no MpiCommunicator yet."""
    MPI.COMM_WORLD.Abort(exit_code)


def _discard(_: str) -> None:
    """Do nothing: the first rank of the node notifies the user."""


def _split_bytes(joined: bytearray, lengths: Array) -> list[bytes]:
    """Return the consecutive pieces of ``joined`` that have these ``lengths``."""
    ends = np.cumsum(lengths)
    return [bytes(joined[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
