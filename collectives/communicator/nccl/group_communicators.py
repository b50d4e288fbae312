"""Communicators of NCCL, one for each group of ranks that meets, made before the first step, by all ranks in one order.

The world's is made first, in such a way that no call waits (``blocking = 0``), and only serves to split the others off:
these launch their work when they are called, which CUDA graphs can hold. Between two looks at NCCL the ranks tell each
other how far they are, so that all end as soon as one cannot go on, and know which one and why.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from collectives.communicator.group import Group, describe_group
from collectives.communicator.interface import Communicator
from collectives.communicator.nccl.api import (
    NO_COLOR,
    CommConfig,
    NcclApi,
    NcclComm,
    NcclError,
    NcclResult,
)
from spmd.errors import RunError

_LOOK_SECONDS = 0.001
_TELL_SECONDS = 0.2
"""For which a rank looks at NCCL before it hears from the others again."""


def rounds_of(groups: Sequence[Group]) -> list[list[Group]]:
    """``groups`` in as few rounds as a greedy choice finds, of groups without a common rank: one split makes a round.

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


class Cliques:
    """This rank's ends of all cliques. Made, added to and closed by all ranks together."""

    def __init__(
        self, api: NcclApi, host: Communicator, config: CommConfig, timeout_seconds: float
    ) -> None:
        """``config`` of the cliques. RunError on every rank where one cannot begin, with its cause."""
        self._api = api
        self._host = host
        self._config = config
        self._timeout = timeout_seconds
        self._of: dict[Group, NcclComm] = {}
        self._known: dict[Group, None] = {}  # of all ranks
        self._ending = threading.Lock()  # a communicator that is ended is not looked at
        self._parent = NcclComm()
        self._begun: list[NcclComm] = []  # NCCL writes their addresses when it pleases
        unique = self._agreed_id()
        making = CommConfig(blocking=False, max_ctas=config.max_ctas)
        what = f"NCCL's communicator of {host.size} ranks"

        def begin() -> None:
            self._parent = api.init_rank(host.size, unique, host.rank, making)

        self._run_on_all_ranks(what, begin, lambda: self._parent)

    def __getitem__(self, group: Group) -> NcclComm:
        """Return the communicator whose ranks are those of ``group`` in this order."""
        return self._of[group]

    @property
    def comms(self) -> list[NcclComm]:
        """The communicators that have been created."""
        return [self._parent, *self._of.values()]

    def states(self) -> Iterator[tuple[NcclComm, NcclResult]]:
        """Yield the communicators that have not been ended and NCCL's asynchronous state of each. Any thread may call
        it."""
        for comm in tuple(self._of.values()):
            with self._ending:
                state = self._api.async_error(comm) if comm.address else NcclResult.SUCCESS
            yield comm, state

    def add(self, groups: Sequence[Group]) -> None:
        """Split off those of ``groups``, of all ranks, that are new. The same order on every rank."""
        new = [group for group in groups if group not in self._known]
        for number, chosen in enumerate(rounds_of(new)):
            rank = self._host.rank
            own = next((group for group in chosen if rank in group), None)
            color = NO_COLOR if own is None else chosen.index(own)
            key = 0 if own is None else own.index(rank)
            made = NcclComm()

            def begin(color: int = color, key: int = key) -> None:
                nonlocal made
                made = self._api.split(self._parent, color, key, self._config)
                self._begun.append(made)

            what = f"split {number} of NCCL's communicator ({_describe(chosen)})"
            self._run_on_all_ranks(what, begin, lambda: self._parent)
            if own is not None:
                self._require_made(made, own)
                self._of[own] = made
            self._known.update(dict.fromkeys(chosen))

    def abort(self) -> None:
        """End all that is under way here; from any thread."""
        with self._ending:
            for comm in self.comms:
                if comm.address:
                    self._api.abort(comm)

    def close(self) -> None:
        """Every rank, with nothing in flight."""
        for comm in self._of.values():
            self._api.destroy(comm)
        self._of.clear()
        self._run_on_all_ranks(
            "the end of NCCL's communicator",
            lambda: self._api.finalize(self._parent),
            lambda: self._parent,
        )
        self._api.destroy(self._parent)

    def _agreed_id(self) -> bytes:
        """Rank 0's, or its error on every rank."""
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
        self, what: str, begin: Callable[[], None], comm: Callable[[], NcclComm]
    ) -> None:
        """``begin`` on every rank, and wait until it is done on every one. RunError on all where it fails on one."""
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
                    state = self._look(comm())
                except NcclError as error:
                    trouble = str(error)
            if not trouble and state not in (NcclResult.SUCCESS, NcclResult.IN_PROGRESS):
                trouble = self._api.describe(comm(), state)
            is_late = time.monotonic() > deadline
            if self._all_done(what, trouble, state is NcclResult.SUCCESS, is_late):
                return

    def _look(self, comm: NcclComm) -> NcclResult:
        """Return the state of ``comm``; if it is in progress, after a short wait."""
        end = time.monotonic() + _TELL_SECONDS
        while True:
            state = self._api.async_error(comm)
            if state is not NcclResult.IN_PROGRESS or time.monotonic() > end:
                return state
            time.sleep(_LOOK_SECONDS)

    def _all_done(self, what: str, trouble: str, done: bool, is_late: bool) -> bool:
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

    def _require_made(self, comm: NcclComm, group: Group) -> None:
        if not comm.address:
            raise RunError(f"NCCL made no communicator of {describe_group(group)}")


def _describe(groups: Sequence[Group]) -> str:
    more = f" and {len(groups) - 2} more" if len(groups) > 2 else ""
    return "groups " + " ".join(map(describe_group, groups[:2])) + more
