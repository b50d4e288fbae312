"""NCCL and GPUs, played truly on the host's memory: streams run by themselves, collectives meet, and nobody waits kindly.

A *rank* is a thread that issues; each of its streams is another thread, which does what is put on it in order. A call
of NCCL is put on a stream, and there it waits for its peers, as NCCL's kernels do: the n-th call of a communicator
meets the n-th of every other member, whatever these are; it fails, for all, where they do not fit. Sends and receives
meet in order between two members. Addresses are those of NumPy arrays. Written from NCCL's documentation; imports
nothing of what is tested but the names of types and results.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from collectives.communicator.actions.device_actions import NcclType
from collectives.communicator.nccl.api import CommConfig, NcclComm, NcclError, NcclResult
from collectives.communicator.nccl.registered_memory import MemoryBlock
from tests.collectives.communicator.nccl.host_device import AbortedError, Device, memory_at
from tests.collectives.communicator.nccl.nccl_reductions import Call, carry_out, num_bytes_of
from tests.collectives.communicator.nccl.registered import Places, Registrations, require_symmetric


@dataclass
class LocalBarrier:
    calls: dict[int, Call] = field(default_factory=dict)
    places: dict[int, Places] = field(default_factory=dict)
    done: bool = False


@dataclass
class Message:
    data: np.ndarray


class Clique:
    """A communicator as NCCL's ends share it."""

    def __init__(self, world: World, members: tuple[int, ...]) -> None:
        self.world = world
        self.members = members
        self.meetings: dict[int, LocalBarrier] = defaultdict(LocalBarrier)
        self.messages: dict[tuple[int, int], deque[Message]] = defaultdict(deque)
        #: Sizes of the n-th window, by member that has come to register it.
        self.windows: dict[int, dict[int, int]] = defaultdict(dict)
        #: Members that destroy their ends.
        self.ending: set[int] = set()


@dataclass
class End:
    """One rank's end of a clique."""

    clique: Clique | None
    rank: int
    config: CommConfig
    state: NcclResult = NcclResult.IN_PROGRESS
    text: str = ""
    calls: int = 0
    aborted: bool = False
    registered: Registrations = field(default_factory=Registrations)
    window_count: int = 0
    #: Kernels in graphs.
    persistent: int = 0
    making: Callable[[], None] | None = None


class World:
    """The state that the communicators of all ranks share, and the faults that are planted in it."""

    def __init__(self, size: int, version: int = 23004) -> None:
        self.size = size
        self.version = version
        self.condition = threading.Condition()
        self.addresses = itertools.count(0x1000)
        self.ends: dict[int, End] = {}
        self.starting: dict[bytes, dict[int, End]] = defaultdict(dict)
        self.splits: dict[tuple[int, int], dict[int, tuple[int, int, End, NcclComm]]] = defaultdict(
            dict
        )
        self.split_counts: dict[tuple[int, int], int] = defaultdict(int)
        self.made: list[tuple[int, ...]] = []
        self.log: list[tuple[int, str]] = []
        #: rank -> text: its start fails.
        self.failing_start: dict[int, str] = {}
        self.hangs_in_start: set[int] = set()
        self.stuck_abort: set[int] = set()
        #: Memory of ncclMemAlloc by address.
        self.memory: dict[int, MemoryBlock] = {}
        #: Handles of windows and buffers that were registered, as (is it a window, members), in order.
        self.registered: list[tuple[bool, tuple[int, ...]]] = []
        #: Communicators have no windows, or register nothing at all.
        self.has_windows = self.registers = True
        #: rank -> text: it fails to register a window.
        self.failing_window: dict[int, str] = {}
        self.destroyed: list[tuple[int, tuple[int, ...]]] = []

    def api(self, rank: int, device: Device) -> DoubleApi:
        return DoubleApi(self, rank, device)

    def plant(self, rank: int, result: NcclResult, text: str) -> None:
        """An error that ``rank`` finds later, on all of its communicators."""
        with self.condition:
            for end in self.ends.values():
                if end.clique is not None and end.rank == rank and end.config.blocking:
                    end.state, end.text = result, text
            self.condition.notify_all()


@dataclass
class Grouped:
    """One call of a group: ``run``, on the stream, begins it and says how to try to end it."""

    end: End
    stream: int
    run: Callable[[], Callable[[], bool]]
    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]


@dataclass
class DoubleApi:
    """A double of NcclLibrary, for the calls of one rank."""

    world: World
    rank: int
    device: Device
    depth: int = 0
    grouped: list[Grouped] = field(default_factory=list)

    def version(self) -> int:
        return self.world.version

    def unique_id(self) -> bytes:
        return f"id {time.monotonic_ns()}".encode().ljust(128, b"\0")

    # ---- communicators
    def init_rank(self, size: int, unique_id: bytes, rank: int, config: CommConfig) -> NcclComm:
        assert size == self.world.size
        assert rank == self.rank
        world = self.world
        if rank in world.failing_start:
            raise NcclError(f"ncclCommInitRankConfig: {world.failing_start[rank]}")
        comm, end = self._new(config)
        with world.condition:
            starting = world.starting[unique_id]
            if rank not in world.hangs_in_start:
                starting[rank] = end
            if len(starting) == size:
                clique = Clique(world, tuple(range(size)))
                for other in starting.values():
                    other.clique, other.state = clique, NcclResult.SUCCESS
            world.condition.notify_all()
        assert not config.blocking, "a rank whose peer fails would wait without end"
        return comm

    def split(self, parent: NcclComm, color: int, key: int, config: CommConfig) -> NcclComm:
        world, mother = self.world, self._end(parent)
        assert mother.clique is not None
        comm, end = NcclComm(), End(None, self.rank, config)
        with world.condition:
            mother.state = NcclResult.IN_PROGRESS
            count = (id(mother.clique), self.rank)
            number = world.split_counts[count]
            world.split_counts[count] += 1
            split = world.splits[id(mother.clique), number]
            split[self.rank] = (color, key, end, comm)
            if len(split) == len(mother.clique.members):
                self._make_split(mother.clique, split)
            world.condition.notify_all()
        return comm

    def _make_split(self, parent: Clique, split: dict[int, tuple[int, int, End, NcclComm]]) -> None:
        world = self.world
        for color in sorted({color for color, *_ in split.values()} - {-1}):
            chosen = sorted((key, rank) for rank, (c, key, _, _) in split.items() if c == color)
            clique = Clique(world, tuple(rank for _, rank in chosen))
            world.made.append(clique.members)
            for _, rank in chosen:
                _, _, end, comm = split[rank]
                end.clique, end.state = clique, NcclResult.SUCCESS
                address = next(world.addresses)
                world.ends[address] = end
                comm.cell.value = address
        for end in world.ends.values():
            if end.clique is parent:
                end.state = NcclResult.SUCCESS

    def async_error(self, comm: NcclComm) -> NcclResult:
        return self._end(comm).state

    def describe(self, comm: NcclComm | None, result: NcclResult) -> str:
        text = self._end(comm).text if comm is not None and comm.address else ""
        return f"{result.name.lower().replace('_', ' ')}{f' ({text})' if text else ''}"

    def abort(self, comm: NcclComm) -> None:
        if self.rank in self.world.stuck_abort:
            time.sleep(3600)
        with self.world.condition:
            end = self.world.ends.get(comm.address)
            comm.cell.value = None
            if end is None:
                return
            end.aborted = True
            self.world.condition.notify_all()
            while end.persistent:  # as NCCL, also in an abort
                self.world.condition.wait(0.05)

    def destroy(self, comm: NcclComm) -> None:
        world, end = self.world, self._end(comm)
        comm.cell.value = None
        clique = end.clique
        assert clique is not None
        with world.condition:
            clique.ending.add(self.rank)
            world.condition.notify_all()
            while end.persistent or clique.ending != set(clique.members):
                world.condition.wait(0.05)
            end.aborted = True
            world.destroyed.append((self.rank, clique.members))

    # ---- memory
    def mem_alloc(self, num_bytes: int) -> int:
        assert self.world.version >= 21901
        block = self.device.allocate(num_bytes)
        self.world.memory[block.ptr] = block
        return block.ptr

    def mem_free(self, address: int) -> None:
        """Memory that is registered may not be freed."""
        for end in self.world.ends.values():
            if end.rank == self.rank and not end.aborted:
                assert end.registered.place(address)[0] == "none", "freed before its registration"
        del self.world.memory[address]

    def register(self, comm: NcclComm, address: int, num_bytes: int) -> int:
        return self._registered(comm, address, num_bytes, False) if self.world.registers else 0

    def register_window(self, comm: NcclComm, address: int, num_bytes: int) -> int:
        """All members meet, as in NCCL's exchange of handles."""
        world, end = self.world, self._end(comm)
        assert world.version >= 22700
        if not world.has_windows:
            return 0
        if self.rank in world.failing_window:
            raise NcclError(f"ncclCommWindowRegister: {world.failing_window[self.rank]}")
        clique = end.clique
        assert clique is not None
        with world.condition:
            sizes = clique.windows[end.window_count]
            sizes[self.rank] = num_bytes
            end.window_count += 1
            world.condition.notify_all()
            while len(sizes) < len(clique.members):
                if end.aborted:
                    raise NcclError("ncclCommWindowRegister: aborted")
                world.condition.wait(0.05)
            assert len(set(sizes.values())) == 1, "a window of different sizes"
        return self._registered(comm, address, num_bytes, True)

    def deregister(self, comm: NcclComm, handle: int) -> None:
        assert not self._end(comm).registered.of.pop(handle)[0]

    def deregister_window(self, comm: NcclComm, handle: int) -> None:
        assert self._end(comm).registered.of.pop(handle)[0]

    def _registered(self, comm: NcclComm, address: int, num_bytes: int, window: bool) -> int:
        end = self._end(comm)
        assert address in self.world.memory, "memory of another allocator"
        assert end.registered.place(address)[0] == "none", "registered twice"
        handle = next(self.world.addresses)
        end.registered.of[handle] = (window, address, num_bytes)
        assert end.clique is not None
        self.world.registered.append((window, end.clique.members))
        return handle

    def _new(self, config: CommConfig) -> tuple[NcclComm, End]:
        comm, end = NcclComm(), End(None, self.rank, config)
        address = next(self.world.addresses)
        comm.cell.value = address
        self.world.ends[address] = end
        return comm, end

    def _end(self, comm: NcclComm) -> End:
        if not comm.address:
            raise NcclError("a call: invalid argument: no communicator")
        return self.world.ends[comm.address]

    # ---- collectives
    def all_reduce(self, comm, send, receive, count, kind, operation, stream) -> None:  # type: ignore[no-untyped-def]
        self._collective(
            comm, Call("all_reduce", count, kind, operation, None, send, receive), stream
        )

    def all_gather(self, comm, send, receive, count, kind, stream) -> None:  # type: ignore[no-untyped-def]
        self._collective(comm, Call("all_gather", count, kind, None, None, send, receive), stream)

    def reduce_scatter(self, comm, send, receive, count, kind, operation, stream) -> None:  # type: ignore[no-untyped-def]
        self._collective(
            comm, Call("reduce_scatter", count, kind, operation, None, send, receive), stream
        )

    def broadcast(self, comm, send, receive, count, kind, root, stream) -> None:  # type: ignore[no-untyped-def]
        self._collective(comm, Call("broadcast", count, kind, None, root, send, receive), stream)

    def send(self, comm, send, count, kind, peer, stream) -> None:  # type: ignore[no-untyped-def]
        end = self._end(comm)
        clique, index = self._place(end, kind, count)
        assert peer != index, "a message to itself needs no NCCL"
        num_bytes = num_bytes_of(count, kind)

        def attempt() -> bool:
            clique.messages[index, peer].append(Message(memory_at(send, num_bytes).copy()))
            return True

        self._put(end, stream, lambda: attempt, [(send, num_bytes)], [])

    def receive(self, comm, receive, count, kind, peer, stream) -> None:  # type: ignore[no-untyped-def]
        end = self._end(comm)
        clique, index = self._place(end, kind, count)
        num_bytes = num_bytes_of(count, kind)

        def attempt() -> bool:
            box = clique.messages[peer, index]
            if not box:
                return False
            data = box.popleft().data
            assert data.nbytes == num_bytes, "sender and receiver disagree on the size"
            memory_at(receive, num_bytes)[:] = data
            return True

        self._put(end, stream, lambda: attempt, [], [(receive, num_bytes)])

    def group_start(self) -> None:
        self.depth += 1

    def group_end(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            grouped, self.grouped = self.grouped, []
            self._launch(grouped)

    def _place(self, end: End, kind: NcclType, count: int) -> tuple[Clique, int]:
        assert end.clique is not None
        assert count > 0
        assert kind < NcclType.FLOAT8E4M3 or self.world.version >= 22400
        return end.clique, end.clique.members.index(self.rank)

    def _collective(self, comm: NcclComm, call: Call, stream: int) -> None:
        end = self._end(comm)
        clique, index = self._place(end, call.kind, call.count)
        places = end.registered.place(call.send), end.registered.place(call.receive)

        def run() -> Callable[[], bool]:
            meeting = clique.meetings[end.calls]
            end.calls += 1
            meeting.calls[index], meeting.places[index] = call, places

            def attempt() -> bool:
                if len(meeting.calls) == len(clique.members) and not meeting.done:
                    everyone = range(len(clique.members))
                    calls = [meeting.calls[i] for i in everyone]
                    require_symmetric(calls, [meeting.places[i] for i in everyone])
                    carry_out(calls)
                    meeting.done = True
                return meeting.done

            return attempt

        n, num_bytes = len(clique.members), num_bytes_of(call.count, call.kind)
        sent = num_bytes * (n if call.function == "reduce_scatter" else 1)
        received = num_bytes * (n if call.function == "all_gather" else 1)
        reads = [] if call.function == "broadcast" and index != call.root else [(call.send, sent)]
        self._put(end, stream, run, reads, [(call.receive, received)])

    def _put(
        self,
        end: End,
        stream: int,
        run: Callable[[], Callable[[], bool]],
        reads: list[tuple[int, int]],
        writes: list[tuple[int, int]],
    ) -> None:
        if end.aborted:
            raise NcclError("a collective: invalid usage: the communicator was aborted")
        self.grouped.append(Grouped(end, stream, run, reads, writes))
        if self.depth == 0:
            grouped, self.grouped = self.grouped, []
            self._launch(grouped)

    def _launch(self, grouped: list[Grouped]) -> None:
        """One kernel: all calls of a group go on together, in any order."""
        if not grouped:
            return
        streams = {one.stream for one in grouped}
        assert len(streams) == 1
        world = self.world

        def kernel() -> None:
            with world.condition:
                left = [(one.end, one.run()) for one in grouped]
                while True:
                    try:
                        done = [one for one in left if one[1]()]
                    except AssertionError as error:
                        for end, _ in left:
                            end.state, end.text = NcclResult.INTERNAL_ERROR, str(error)
                        raise
                    left = [one for one in left if one not in done]
                    if done:
                        world.condition.notify_all()
                    if not left:
                        return
                    if any(end.aborted for end, _ in left):
                        raise AbortedError
                    if not done:
                        world.condition.wait(0.05)

        if self.device.is_capturing(next(iter(streams))):
            for end in {id(one.end): one.end for one in grouped}.values():
                end.persistent += 1
                weakref.finalize(kernel, self._lose, end)
        reads = [place for one in grouped for place in one.reads]
        writes = [place for one in grouped for place in one.writes]
        self.device.put(streams.pop(), kernel, reads, writes)

    def _lose(self, end: End) -> None:
        """A graph with a kernel of ``end`` is destroyed."""
        end.persistent -= 1
