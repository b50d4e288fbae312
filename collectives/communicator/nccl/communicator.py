"""Communicator whose devices are GPUs, by NCCL.

One thread issues all collectives of a rank, and they run on its GPU one after the other, whatever their streams. Their
order is therefore the order of the program on every rank, which excludes deadlocks in which two collectives each occupy
one GPU and wait for another.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.communicator.actions.device_actions import DeviceActions, DeviceArray
from collectives.communicator.group import Group, describe_group, require_in
from collectives.communicator.kinds.op import Collective
from collectives.communicator.nccl.api import CommConfig, NcclComm, NcclLibrary
from collectives.communicator.nccl.arrivals import Arrivals
from collectives.communicator.nccl.enqueue import enqueue
from collectives.communicator.nccl.group_communicators import Cliques, HasGraphs
from collectives.communicator.nccl.in_flight import (
    AsyncCollective,
    HostCommunicator,
    InFlightCollectives,
)
from collectives.communicator.nccl.plan_actions import plan_actions
from collectives.communicator.nccl.registered_memory import MemoryBlock
from collectives.communicator.nccl.registration import MemoryRegistration, digest
from collectives.communicator.nccl.watchdog_thread import NcclWatch
from spmd.errors import CollectiveTimeoutError, RunError
from spmd.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collectives.communicator.nccl.cuda_memory import CudaEvent, CudaMemory

_END_SECONDS = 5.0
"""Time for which a rank waits at the end for other ranks to free their communicators."""

_TURNS = 4
"""Largest number of runs of one collective that are in flight."""


class Turns:
    """Pairs of events before and after a collective. Successive runs use _TURNS pairs in turn."""

    def __init__(self, memory: CudaMemory) -> None:
        self._pairs = itertools.cycle([(memory.event(), memory.event()) for _ in range(_TURNS)])

    def next(self) -> tuple[CudaEvent, CudaEvent]:
        """Return the events for the next run. ``InFlightCollectives.begin`` waits for the earlier run with them."""
        return next(self._pairs)


@dataclass(eq=False)
class NcclCollective:
    """A collective that is bound to arrays of a GPU.

    ``NcclCommunicator.connect`` sets ``actions``, ``scratch``, the block of memory that they use, and ``comm``, which
    is None for a group of one rank.
    """

    world: NcclCommunicator
    collective: Collective
    name: str
    operands: tuple[DeviceArray, ...]
    results: tuple[DeviceArray, ...]
    turns: Turns
    actions: DeviceActions = field(default_factory=DeviceActions)
    scratch: MemoryBlock | None = None
    comm: NcclComm | None = None

    @property
    def group(self) -> Group:
        return self.collective.group

    def enqueue(self, stream: int) -> None:
        """Enqueue the collective on ``stream``, or add it to the CUDA graph that is being captured there.

        Raises RunError if NCCL has failed, and CollectiveTimeoutError if too many collectives are in flight and the
        oldest does not end.
        """
        self.world.enqueue(self, stream)

    @property
    def consistency_key(self) -> list[object]:
        """Return the values that must be equal on all members of the group."""
        shapes = [[str(one.dtype), one.shape] for one in (*self.operands, *self.results)]
        return [self.name, repr(self.collective), shapes]


class NcclCommunicator:
    """The communicator of one rank's GPU, which all ranks must create together. It lasts until the process ends."""

    def __init__(
        self,
        host: HostCommunicator,
        api: NcclLibrary,
        memory: CudaMemory,
        *,
        timeout_seconds: float = 300.0,
        max_ctas: int | None = None,
        registers: bool = True,
        notify: Callable[[str], None] = lambda _: None,
        give_up: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create the communicator. ``host`` is the communicator among the ranks' processes.

        ``timeout_seconds`` limits waits for peers that make no progress. ``max_ctas`` is the largest number of CTAs
        that a collective may use; None leaves the choice to NCCL. ``registers``: memory is registered with NCCL.
        ``notify`` is called on rank 0 with a message for the user. ``give_up`` must end this process with the given
        message; it is called if NCCL does not return after an abort. Raises RunError on every rank if NCCL cannot be
        started on one.
        """
        self.host = host
        self._api = api
        self._memory = memory
        self._version = api.version()
        config = CommConfig(blocking=True, max_ctas=max_ctas)
        self._cliques = Cliques(api, host, config, timeout_seconds, memory.use)
        self._registration = MemoryRegistration(
            host, api, memory, self._cliques, enabled=registers, notify=notify
        )
        self._prefix = f"[rank {host.rank}/{host.size}]"
        self._in_flight = InFlightCollectives(host)
        self._watch = NcclWatch(
            api, self._cliques, self._prefix, timeout_seconds, give_up, self._in_flight.oldest_known
        )
        self._in_flight.raise_if_failed = self._watch.raise_if_failed
        self._end = memory.event()
        self._new: list[NcclCollective] = []
        self._captured: list[NcclCollective] = []
        self._arrivals: dict[Group, Arrivals] = {}
        self._graphs: dict[tuple[int, ...], Turns] = {}
        self._notes: dict[str, Callable[[], None]] = {}
        self._last: tuple[CudaEvent, int] | None = None
        self._issuer: int | None = None

    def cannot(self, collective: Collective, dtypes: Sequence[np.dtype[Any]]) -> str | None:
        """Return why NCCL cannot run ``collective`` on operands of ``dtypes``, equal on all ranks; None if it can."""
        return collective.nccl_obstacle(dtypes, self._version)

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[DeviceArray],
        results: Sequence[DeviceArray],
    ) -> NcclCollective:
        """Bind a collective to arrays of the GPU, which may overlap as for ``Communicator.bind``.

        Raises RunError if NCCL cannot run the collective.
        """
        require_in(self.host.rank, collective.group, name)
        reason = self.cannot(collective, [operand.dtype for operand in operands])
        if reason is not None:
            raise RunError(f"{name}: {reason}")
        turns = Turns(self._memory)
        bound = NcclCollective(self, collective, name, tuple(operands), tuple(results), turns)
        self._new.append(bound)
        return bound

    def allocate(self, num_bytes: int) -> MemoryBlock:
        """Allocate memory of the GPU for operands and results of the collectives that are bound next.

        All ranks must allocate the same sizes. The content is undefined. Raises RunError if there is not enough memory.
        """
        return self._registration.allocate(num_bytes)

    def add_program(self, program: HasGraphs) -> None:
        """Add a program whose CUDA graphs contain collectives. Only a weak reference is kept."""
        self._cliques.add_program(program)

    def connect(self) -> None:
        """Make the collectives that were bound since the last call ready. Every rank must call it.

        The ranks exchange their groups, create communicators of the new ones in one order, and register new memory with
        the communicators of all groups. Raises RunError on every rank if the members of a group have bound different
        collectives or NCCL fails on one rank.
        """
        scratch_bytes = max((self._plan(bound, 0)[1] for bound in self._new), default=0)
        groups, scratch_bytes = self._agreed_groups(scratch_bytes)
        self._cliques.add(groups)
        arrivals = Arrivals(self.host, groups)
        self._arrivals |= dict.fromkeys(groups, arrivals)
        scratch = self.allocate(scratch_bytes) if scratch_bytes else None
        actions: dict[Group, list[DeviceActions]] = {}
        for bound in self._new:
            bound.actions, _ = self._plan(bound, scratch.ptr if scratch else 0)
            bound.scratch = scratch
            bound.comm = self._cliques[bound.group] if len(bound.group) > 1 else None
            actions.setdefault(bound.group, []).append(bound.actions)
        self._registration.register(groups, actions)
        self._new.clear()

    def enqueue(self, bound: NcclCollective, stream: int) -> None:
        """Enqueue ``bound`` on ``stream`` (``NcclCollective.enqueue``)."""
        self._watch.raise_if_failed()
        if self._memory.is_capturing(stream):
            self._captured.append(bound)
            self._put(bound, stream)
        else:
            self._launch((bound,), stream, lambda: self._put(bound, stream))

    def captured(self) -> tuple[NcclCollective, ...]:
        """Return the collectives that were captured into CUDA graphs since the last call, in order."""
        captured, self._captured = tuple(self._captured), []
        return captured

    def replay(
        self, captured: Sequence[NcclCollective], stream: int, launch: Callable[[], None]
    ) -> None:
        """Call ``launch``, which launches on ``stream`` a CUDA graph that contains the collectives ``captured``."""
        if captured:
            self._launch(captured, stream, launch)
        else:
            launch()

    def _launch(
        self, collectives: Sequence[NcclCollective], stream: int, launch: Callable[[], None]
    ) -> None:
        """Call ``launch``, which enqueues ``collectives`` on ``stream``, and record them as in flight.

        Events are recorded on the stream before and after the work. Raises RunError if NCCL has failed.
        """
        self._watch.raise_if_failed()
        self._require_one_issuer()
        started = self._async_collective(collectives)
        with self._aborting():
            self._in_flight.begin(started)
        self._follow(stream)
        started.reached.record(stream)
        with self._watch.calling(started.name):
            launch()
        started.ended.record(stream)
        self._last = (started.ended, stream)
        self._note(started.name)()

    def _follow(self, stream: int) -> None:
        """Have later work on ``stream`` wait for the previous collective if that is on another stream."""
        if self._last is not None and self._last[1] != stream:
            self._last[0].hold_up(stream)

    def _put(self, bound: NcclCollective, stream: int) -> None:
        """Enqueue the actions of ``bound`` on ``stream``."""
        enqueue(bound.actions, self._api, bound.comm, self._memory, stream)

    def wait(self, stream: int) -> None:
        """Wait until all work that is now on ``stream`` is done.

        Raises CollectiveTimeoutError, with the collective and the missing ranks, if ranks do not arrive, and RunError
        if NCCL fails. A wait by CUDA itself would block without limit if a peer is missing.
        """
        self._end.record(stream)
        with self._aborting():
            self._in_flight.wait(self._end.is_done)

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """Return a context that aborts NCCL if a wait in it times out, so that the GPU's waiting work ends first."""
        try:
            yield
        except CollectiveTimeoutError as error:
            self._watch.fail(str(error))
            self._watch.settle()
            raise

    def leave(self) -> None:
        """Stop the watchdog thread and, unless NCCL has failed, free the communicators.

        All ranks call it before their processes end. It waits at most _END_SECONDS for other ranks.
        """
        self._watch.stop()
        if not self._watch.has_failed:
            self._cliques.destroy(_END_SECONDS)

    def _plan(self, bound: NcclCollective, scratch: int) -> tuple[DeviceActions, int]:
        """Return the actions of ``bound`` with scratch memory at address ``scratch``, and its size in bytes."""
        return plan_actions(
            bound.collective, self.host.rank, bound.operands, bound.results, self._version, scratch
        )

    def _agreed_groups(self, scratch_bytes: int) -> tuple[list[Group], int]:
        """Return the groups of several ranks in which any rank has bound new collectives, sorted, and the largest
        ``scratch_bytes`` of all ranks.

        Raises RunError, on every rank, if the members of a group have bound different collectives, or if ranks have
        allocated different memory.
        """
        own: dict[Group, list[object]] = {}
        for bound in self._new:
            if len(bound.group) > 1:
                own.setdefault(bound.group, []).append(bound.consistency_key)
        digests = [[group, digest(keys), len(keys)] for group, keys in own.items()]
        payload = json.dumps([digests, self._registration.new_sizes, scratch_bytes]).encode()
        gathered = [json.loads(data) for data in self.host.all_gather_bytes(payload)]
        everyone = [
            {tuple(group): (found, count) for group, found, count in of_rank}
            for of_rank, _, _ in gathered
        ]
        groups = dict.fromkeys(group for of_rank in everyone for group in of_rank)
        for group in groups:
            found = {rank: everyone[rank].get(group) for rank in group}
            odd = [rank for rank in group if found[rank] != found[group[0]]]
            if odd:
                raise RunError(
                    f"group {describe_group(group)} does not bind the same collectives: "
                    f"rank {odd[0]} differs from rank {group[0]}"
                )
        for rank, (_, sizes, _) in enumerate(gathered):
            if sizes != gathered[0][1]:
                raise RunError(
                    f"rank {rank} has blocks of {sizes} bytes for collectives, rank 0 of {gathered[0][1]}"
                )
        return sorted(groups), max(taken for _, _, taken in gathered)

    def _async_collective(self, collectives: Sequence[NcclCollective]) -> AsyncCollective:
        """Count this rank's arrival in each group, and return ``collectives`` as one entry in flight.

        Several collectives must be those of one CUDA graph.
        """
        counts: dict[Group, int] = {}
        for bound in collectives:
            if len(bound.group) > 1:
                counts[bound.group] = self._arrivals[bound.group].arrive(bound.group)

        def late() -> list[int]:
            behind: dict[int, None] = {}
            for group, count in counts.items():
                behind.update(dict.fromkeys(self._arrivals[group].missing(group, count)))
            return list(behind)

        first = collectives[0]
        if len(collectives) == 1:
            return AsyncCollective(first.name, first.group, *first.turns.next(), late)
        key = tuple(map(id, collectives))
        turns = self._graphs.setdefault(key, Turns(self._memory))
        ranks = tuple(sorted({rank for bound in collectives for rank in bound.group}))
        names = ", ".join(bound.name for bound in collectives[:3])
        name = f"{names}{', ...' if len(collectives) > 3 else ''} (of one CUDA graph)"
        return AsyncCollective(name, ranks, *turns.next(), late)

    def _note(self, name: str) -> Callable[[], None]:
        """Return the function, created once for each ``name``, that notes that ``name`` was started last."""
        if name not in self._notes:
            self._notes[name] = self.host.prepared_note(f"last started {name}")
        return self._notes[name]

    def _require_one_issuer(self) -> None:
        """Raise RunError unless the calling thread has issued all collectives so far."""
        if self._issuer is None:
            self._issuer = threading.get_ident()
        if self._issuer != threading.get_ident():
            raise RunError("the collectives of one device are issued by one thread")
