"""NCCL communicators, one for each group of ranks. All ranks create them in one order, before the first step.

The communicator of all ranks is created first, as a nonblocking one (``blocking = 0``), and serves only to split off
the others. The others are blocking: a call launches its work before it returns, so that a CUDA graph can capture it.
While NCCL creates communicators, the ranks exchange their progress: if one rank fails, all ranks raise an error that
names that rank and the cause.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from collectives.communicator.group import Group, describe_group
from collectives.communicator.interface import Communicator
from collectives.communicator.nccl.api import (
    NO_COLOR,
    CommConfig,
    NcclComm,
    NcclError,
    NcclLibrary,
    NcclResult,
)
from spmd.errors import RunError

#: Interval at which a rank polls NCCL.
_LOOK_SECONDS = 0.001
_TELL_SECONDS = 0.2
"""Time for which a rank polls NCCL before the ranks exchange their progress again."""


def rounds_of(groups: Sequence[Group]) -> list[list[Group]]:
    """Partition ``groups`` greedily into rounds of disjoint groups. One ncclCommSplit creates the groups of a round.

    {0,1} {0,2} {1,3} {2,3}  =>  [{0,1} {2,3}]  [{0,2} {1,3}]
    """
    rounds: list[tuple[list[Group], set[int]]] = []
    for group in groups:
        for chosen, ranks in rounds:
            if ranks.isdisjoint(group):
                chosen.append(group)
                ranks.update(group)
                break
        else:
            rounds.append(([group], set(group)))
    return [chosen for chosen, _ in rounds]


class HasGraphs(Protocol):
    """A program with CUDA graphs that contain collectives."""

    def release_graphs(self) -> None:
        """Drop the graphs. Any thread may call it."""
        ...


class Cliques:
    """The communicators of one rank, by group. XLA calls the ranks of an NCCL communicator a clique.

    All ranks must create and extend the cliques together.
    """

    def __init__(
        self,
        api: NcclLibrary,
        host: Communicator,
        config: CommConfig,
        timeout_seconds: float,
        use_device: Callable[[], None],
    ) -> None:
        """Create the communicator of all ranks of ``host``.

        ``config`` configures the communicators that ``add`` creates. ``timeout_seconds`` limits each creation.
        ``use_device`` makes the rank's GPU the current one of the calling thread: NCCL calls cudaSetDevice with the
        thread's device when it returns, and so every rank would use memory of GPU 0. Raises RunError on every rank,
        with the cause, if NCCL fails on one or does not finish in time.
        """
        self._api = api
        self._use_device = use_device
        self._host = host
        self._config = config
        self._timeout = timeout_seconds
        self._of: dict[Group, NcclComm] = {}
        self._known: dict[Group, None] = {}  # groups of all ranks that were added
        #: Held while communicators are aborted, while the state of one is read, and while memory that is registered
        #: with them is freed. The garbage collector may free memory in a thread that holds it.
        self.ending = threading.RLock()
        self._programs: weakref.WeakSet[HasGraphs] = weakref.WeakSet()
        self._parent = NcclComm()
        self._begun: list[NcclComm] = []  # kept alive: NCCL writes their addresses at a later time
        unique = self._agreed_id()
        making = CommConfig(blocking=False, max_ctas=config.max_ctas)
        what = f"NCCL's communicator of {host.size} ranks"

        def begin() -> None:
            self._parent = api.init_rank(host.size, unique, host.rank, making)

        self._run_on_all_ranks(what, begin)

    def __getitem__(self, group: Group) -> NcclComm:
        """Return the communicator in which the i-th rank of ``group`` has rank i."""
        return self._of[group]

    @property
    def comms(self) -> list[NcclComm]:
        """Return the communicators of this rank, that of all ranks first."""
        return [self._parent, *self._of.values()]

    def states(self) -> Iterator[tuple[NcclComm, NcclResult]]:
        """Yield the communicator of each group with its asynchronous state, SUCCESS after an abort.

        Any thread may call it.
        """
        for comm in tuple(self._of.values()):
            with self.ending:
                state = self._api.async_error(comm) if comm.address else NcclResult.SUCCESS
            yield comm, state

    def add_program(self, program: HasGraphs) -> None:
        """Add a program whose graphs are dropped before communicators end. Only a weak reference is kept."""
        with self.ending:
            self._programs.add(program)

    def add(self, groups: Sequence[Group]) -> None:
        """Create communicators of the new ones of ``groups``, which are the groups of all ranks in one order.

        Raises RunError on every rank if NCCL fails on one or does not finish in time.
        """
        new = [group for group in groups if group not in self._known]
        for number, chosen in enumerate(rounds_of(new)):
            self._split(number, chosen)
            self._known.update(dict.fromkeys(chosen))

    def _split(self, number: int, chosen: Sequence[Group]) -> None:
        """Create the communicators of one round of groups."""
        rank = self._host.rank
        own = next((group for group in chosen if rank in group), None)
        color = NO_COLOR if own is None else chosen.index(own)
        key = 0 if own is None else own.index(rank)
        made = NcclComm()

        def begin() -> None:
            nonlocal made
            made = self._api.split(self._parent, color, key, self._config)
            self._begun.append(made)

        def missing() -> str:
            return "" if own is None or made.address else _not_made(own)

        what = f"split {number} of NCCL's communicator ({_describe(chosen)})"
        self._run_on_all_ranks(what, begin, missing)
        if own is not None:
            self._of[own] = made

    def run_on_each(
        self, what: str, groups: Sequence[Group], call: Callable[[Group, NcclComm], None]
    ) -> None:
        """Call ``call`` for each of ``groups`` that contains this rank, with its communicator, in order.

        ``call`` may wait in NCCL for the other members. All ranks must call this method, with the same groups. ``what``
        describes the calls. Raises RunError on every rank if one fails on a rank or does not finish in time.
        """
        own = [group for group in groups if self._host.rank in group]
        errors: list[NcclError] = []

        def run() -> None:
            self._use_device()
            try:
                for group in own:
                    call(group, self._of[group])
            except NcclError as error:
                errors.append(error)

        # If a member fails, the calls of the others do not return until their communicators are aborted.
        thread = threading.Thread(target=run, name=what, daemon=True)

        def look() -> NcclResult:
            thread.join(_TELL_SECONDS)
            if thread.is_alive():
                return NcclResult.IN_PROGRESS
            if errors:
                raise errors[0]
            return NcclResult.SUCCESS

        self._run_on_all_ranks(what, thread.start, look=look)

    def destroy(self, seconds: float) -> None:
        """Free all communicators, whose work must be done, and wait at most ``seconds`` for the ranks of this node.

        All ranks call it. Communicators that are aborted are left out.
        """
        self._release_graphs()

        def run() -> None:
            self._use_device()
            for comm in reversed(self.comms):
                with contextlib.suppress(NcclError):
                    self._api.destroy(comm)

        thread = threading.Thread(target=run, name="end of NCCL", daemon=True)
        thread.start()
        thread.join(seconds)

    def abort(self) -> None:
        """Abort all communicators, with their work on the GPU. Any thread may call it."""
        self._use_device()
        self._release_graphs()
        with self.ending:
            for comm in self.comms:
                if comm.address:
                    self._api.abort(comm)

    def _release_graphs(self) -> None:
        """Drop the graphs of all programs: NCCL neither destroys nor aborts a communicator while a graph has its work.

        CUDA destroys a graph that is running once its work has ended, which an abort causes.
        """
        with self.ending:
            for program in self._programs:
                program.release_graphs()

    def _agreed_id(self) -> bytes:
        """Return NCCL's unique id, which rank 0 creates. Raises RunError on every rank if rank 0 fails."""
        payload = b""
        if self._host.rank == 0:
            try:
                payload = b"\0" + self._api.unique_id()
            except RunError as error:
                payload = b"\1" + str(error).encode()
        payload = self._host.broadcast_bytes(payload)
        if payload[:1] != b"\0":
            raise RunError(f"NCCL cannot be started: rank 0: {payload[1:].decode()}")
        return payload[1:]

    def _run_on_all_ranks(
        self,
        what: str,
        begin: Callable[[], None],
        missing: Callable[[], str] = lambda: "",
        look: Callable[[], NcclResult] | None = None,
    ) -> None:
        """Call ``begin`` and wait until the operation that it starts is complete on every rank.

        ``look`` returns the progress on this rank after a wait of up to _TELL_SECONDS; without it, the asynchronous
        state of the communicator of all ranks tells the progress. ``what`` describes the operation. ``missing`` says,
        once it is complete, what this rank misses, or nothing. Raises RunError on every rank if the operation fails on
        one, leaves one without what it needs, or does not finish in time.
        """
        look = look or self._look
        trouble = ""
        try:
            begin()
        except NcclError as error:
            trouble = str(error)
        deadline = time.monotonic() + self._timeout
        while True:
            state = NcclResult.SUCCESS
            if not trouble:
                try:
                    state = look()
                except NcclError as error:
                    trouble = str(error)
            if not trouble and state not in (NcclResult.SUCCESS, NcclResult.IN_PROGRESS):
                trouble = self._api.describe(self._parent, state)
            if not trouble and state is NcclResult.SUCCESS:
                trouble = missing()
            is_late = time.monotonic() > deadline
            if self._all_done(what, trouble, state is NcclResult.SUCCESS, is_late):
                return

    def _look(self) -> NcclResult:
        """Return the asynchronous state of the communicator of all ranks, after a wait of up to _TELL_SECONDS while it
        is in progress.
        """
        end = time.monotonic() + _TELL_SECONDS
        while True:
            state = self._api.async_error(self._parent)
            if state is not NcclResult.IN_PROGRESS or time.monotonic() > end:
                return state
            time.sleep(_LOOK_SECONDS)

    def _all_done(self, what: str, trouble: str, done: bool, is_late: bool) -> bool:
        """Exchange the progress of all ranks. Returns whether all are done.

        ``trouble`` is this rank's error, or empty. Aborts the communicators and raises RunError on every rank if one
        has failed, or if one is late while some are not done.
        """
        payload = json.dumps([trouble, done, is_late]).encode()
        everyone = [json.loads(data) for data in self._host.all_gather_bytes(payload)]
        failed = {rank: text for rank, (text, _, _) in enumerate(everyone) if text}
        late = tuple(rank for rank, (_, is_done, _) in enumerate(everyone) if not is_done)
        if not failed and not late:
            return True
        if not failed and not any(ended for _, _, ended in everyone):
            return False
        self.abort()
        if failed:
            causes = "; ".join(f"rank {rank}: {text}" for rank, text in list(failed.items())[:8])
            raise RunError(f"{what} failed: {causes}")
        ranks = describe_group(late)
        raise RunError(f"{what}: {ranks} did not finish within {self._timeout:g} s")


def _not_made(group: Group) -> str:
    return f"NCCL made no communicator of {describe_group(group)}"


def _describe(groups: Sequence[Group]) -> str:
    """Return a text of ``groups``: the first two, and the number of the others."""
    more = f" and {len(groups) - 2} more" if len(groups) > 2 else ""
    return "groups " + " ".join(map(describe_group, groups[:2])) + more
