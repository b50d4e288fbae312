"""A team: the devices of one process on as many threads as it has cores, in native code from step to step."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from collectives.communicator.interface import PeerFailedError
from runtime.cpu.step.segment_ir import SegmentRow
from runtime.cpu.step.thread_team_ir import TeamWord, WorkerStop, team_code
from runtime.cpu.step.worker import Worker
from runtime.cpu.step.worker_ir import WorkerWord
from spmd.literal import NDArray

_IDLE_LOOKS = 8_000
"""Looks for the next step, some 2 ms, before a worker's thread sleeps: to wake it takes a quarter of a millisecond."""

_JOIN_SECONDS = 50e-6
_FAILURE_SECONDS = 60.0
"""How long a failed step waits for the other workers to notice; their memory is kept for ever if they do not."""

_abandoned: list[tuple[Worker, ...]] = []


class ThreadTeam:
    """``workers[0]`` is run by the thread that calls ``run``, each other one by a thread of its own.

    After a step that failed it is of no more use.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        fail: Callable[[Worker, BaseException], None],
        cores: int = 1,
    ) -> None:
        """``fail``: tell the other workers that one has failed, so that their waits end.

        cores: for each worker; the ones beyond its own have helpers, threads that share in the devices' work, where
        there is work to share.
        """
        self._working = len(workers)
        shared = any(table.has_shares for worker in workers for table in worker.tables)
        helpers = len(workers) * (cores - 1) if shared else 0
        self.has_helpers = helpers > 0
        self._workers = (*workers, *(_helper(len(workers)) for _ in range(helpers)))
        if self.has_helpers:
            for worker in workers:
                worker.offer_shares()
        self._fail = fail
        self._failed = _Failures()
        self._list = np.array([worker.address for worker in self._workers], np.int64)
        self._words = np.zeros(len(TeamWord), np.int64)
        self._words[TeamWord.WORKERS] = len(self._workers)
        self._words[TeamWord.LANE_LIST] = self._list.ctypes.data
        self._words[TeamWord.WORKING] = len(workers)
        self._argument = ctypes.c_void_p(self._words.ctypes.data)
        self._run = team_code().team
        for number, worker in enumerate(self._workers[1:], 1):
            worker[WorkerWord.PATIENCE] = _IDLE_LOOKS
            worker[WorkerWord.WORKERS] = self._list.ctypes.data
            worker[WorkerWord.EARLIER] = number
            serving = (worker, fail, self._failed, (self._workers, self._list))
            threading.Thread(
                target=_serve, args=serving, name=f"worker {number}", daemon=True
            ).start()
        self._retire = weakref.finalize(self, _retire, self._workers[1:])

    def run(self) -> None:
        """One step. Of several errors the first one that is not another's consequence is raised."""
        own = self._workers[0]
        try:
            stop = self._run(self._argument, 1)
            while stop:
                if stop == WorkerStop.JOINING:
                    time.sleep(_JOIN_SECONDS)
                else:
                    own.attend(stop)
                stop = self._run(self._argument, 0)
        except BaseException as error:  # noqa: BLE001 - raised when the others are still
            self._failed.add(error)
            self._fail(own, error)
            self._await_others()
        if self._failed.errors:
            self._retire()
            raise self._failed.cause()

    def _await_others(self) -> None:
        """Nobody may free what the other workers still work on. Helpers have nothing of a share that is done."""
        deadline = time.monotonic() + _FAILURE_SECONDS
        others = self._workers[1 : self._working]
        while any(worker[WorkerWord.DONE] != worker[WorkerWord.ASKED] for worker in others):
            if time.monotonic() > deadline:
                _abandoned.append(self._workers)
                return
            time.sleep(_JOIN_SECONDS)


def _helper(helped: int) -> Worker:
    """A worker without devices, for those of the first ``helped`` workers."""

    def wait(_rank: int, _row: SegmentRow) -> bool:
        raise AssertionError("a worker without devices waits for nobody")

    worker = Worker((), wait)
    worker[WorkerWord.HELPED] = helped
    return worker


class _Failures:
    """Errors of a step, of all workers, in the order in which they happened."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def add(self, error: BaseException) -> None:
        self.errors.append(error)

    def cause(self) -> BaseException:
        causes = [error for error in self.errors if not isinstance(error, PeerFailedError)]
        return (causes or self.errors)[0]


def _serve(
    worker: Worker,
    fail: Callable[[Worker, BaseException], None],
    failures: _Failures,
    _alive: tuple[Sequence[Worker], NDArray],
) -> None:
    """Run a worker's thread: step after step, until it is retired or an error occurs.

    ``_alive``: what its native code reads.
    """
    serve, argument = team_code().serve, ctypes.c_void_p(worker.address)
    stop = serve(argument, 0)
    try:
        while stop != WorkerStop.RETIRED:
            worker.attend(stop)
            stop = serve(argument, 1)
    except BaseException as error:  # noqa: BLE001 - carried to the thread that runs the step
        failures.add(error)
        fail(worker, error)
        worker[WorkerWord.DONE] = worker[WorkerWord.ASKED]


def _retire(workers: Sequence[Worker]) -> None:
    for worker in workers:
        team_code().retire(worker.address)
