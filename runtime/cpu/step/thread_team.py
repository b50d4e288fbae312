"""Thread team: native threads that run the devices of one process, at most one per core."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from collectives.communicator.interface import PeerFailedError
from runtime.cpu.step.segment import SegmentRow
from runtime.cpu.step.worker import Worker, WorkerStop, WorkerWord, team_code
from spmd.literal import NDArray


class TeamWord(IntEnum):
    """Words of a team's record."""

    WORKERS = 0  # Number of workers.
    WORKER_LIST = 1  # Address of the list of the addresses of the workers' records.
    STEP = 2  # Number of the current step.
    WORKING = 3  # Number of workers that have tables; they precede the helpers.


_IDLE_SPINS = 8_000
"""Number of polls for the next step, about 2 ms, before a worker's thread sleeps. Waking a thread takes 0.25 ms."""

_JOIN_SECONDS = 50e-6
_FAILURE_SECONDS = 60.0
"""Seconds in which the other workers must notice a failed step. The memory of a team that does not is never freed."""

_abandoned: list[tuple[Worker, ...]] = []


class ThreadTeam:
    """Team of workers. The thread that calls ``run`` runs ``workers[0]``; threads of the team run the others.

    A team cannot be used after a failed step.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        fail: Callable[[Worker, BaseException], None],
        cores: int = 1,
    ) -> None:
        """Start the threads of the team.

        ``fail`` is called with a failed worker and its error, and must end the waits of the other workers. ``cores`` is
        the number of cores per worker. If any table has shares, a helper thread runs on each core beyond the first of
        each worker.
        """
        self._working = len(workers)
        shared = any(table.has_shares for worker in workers for table in worker.tables)
        helpers = len(workers) * (cores - 1) if shared else 0
        self.has_helpers = helpers > 0
        self._workers = (*workers, *(_helper(len(workers)) for _ in range(helpers)))
        if self.has_helpers:
            for worker in workers:
                worker.publish_shares()
        self._fail = fail
        self._failed = _Failures()
        self._list = np.array([worker.address for worker in self._workers], np.int64)
        self._data = np.zeros(len(TeamWord), np.int64)
        self._data[TeamWord.WORKERS] = len(self._workers)
        self._data[TeamWord.WORKER_LIST] = self._list.ctypes.data
        self._data[TeamWord.WORKING] = len(workers)
        self._argument = ctypes.c_void_p(self._data.ctypes.data)
        self._run = team_code().team
        for number, worker in enumerate(self._workers[1:], 1):
            worker[WorkerWord.SPIN_LIMIT] = _IDLE_SPINS
            worker[WorkerWord.WORKERS] = self._list.ctypes.data
            worker[WorkerWord.EARLIER] = number
            serving = (worker, fail, self._failed, (self._workers, self._list))
            threading.Thread(
                target=_serve, args=serving, name=f"worker {number}", daemon=True
            ).start()
        self._retire = weakref.finalize(self, _retire, self._workers[1:])

    def run(self) -> None:
        """Run one step of all devices.

        If workers fail, it raises the first error that is no consequence of another rank's failure, or else the first
        error.
        """
        own = self._workers[0]
        try:
            stop = self._run(self._argument, 1)
            while stop:
                if stop == WorkerStop.JOINING:
                    time.sleep(_JOIN_SECONDS)
                else:
                    own.attend(stop)
                stop = self._run(self._argument, 0)
        except BaseException as error:  # noqa: BLE001 - raised once the other workers have stopped
            self._failed.add(error)
            self._fail(own, error)
            self._await_others()
        if self._failed.errors:
            self._retire()
            raise self._failed.cause()

    def _await_others(self) -> None:
        """Wait until the other workers have stopped, since they use memory that the caller may free.

        Helpers are idle at this point.
        """
        deadline = time.monotonic() + _FAILURE_SECONDS
        others = self._workers[1 : self._working]
        while any(worker[WorkerWord.DONE] != worker[WorkerWord.ASKED] for worker in others):
            if time.monotonic() > deadline:
                _abandoned.append(self._workers)
                return
            time.sleep(_JOIN_SECONDS)


def _helper(helped: int) -> Worker:
    """Return a worker without devices, which runs pieces of the shares of the first ``helped`` workers."""

    def wait(_rank: int, _row: SegmentRow) -> bool:
        raise AssertionError("a worker without devices waits for nobody")

    worker = Worker((), wait)
    worker[WorkerWord.HELPED] = helped
    return worker


class _Failures:
    """Errors of all workers of a team, in the order in which they occurred."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def add(self, error: BaseException) -> None:
        self.errors.append(error)

    def cause(self) -> BaseException:
        """Return the first error that is not the report of a failed peer, or else the first error."""
        causes = [error for error in self.errors if not isinstance(error, PeerFailedError)]
        return (causes or self.errors)[0]


def _serve(
    worker: Worker,
    fail: Callable[[Worker, BaseException], None],
    failures: _Failures,
    _alive: tuple[Sequence[Worker], NDArray],
) -> None:
    """Run the steps of ``worker`` on the calling thread until the worker is retired or fails.

    ``_alive`` owns the memory that native code reads.
    """
    serve, argument = team_code().serve, ctypes.c_void_p(worker.address)
    stop = serve(argument, 0)
    try:
        while stop != WorkerStop.RETIRED:
            worker.attend(stop)
            stop = serve(argument, 1)
    except BaseException as error:  # noqa: BLE001 - raised by the thread that runs the step
        failures.add(error)
        fail(worker, error)
        worker[WorkerWord.DONE] = worker[WorkerWord.ASKED]


def _retire(workers: Sequence[Worker]) -> None:
    """End the threads of ``workers``."""
    for worker in workers:
        team_code().retire(worker.address)


# ---- a team that grows: one thread while steps are short, several threads once they are longer
#
# In a short step, synchronizing threads costs more than it saves: a sleeping thread takes a quarter of a millisecond to
# wake, and a thread whose core other work occupies delays all others by a time slice.


#: Least seconds that more threads must save per step.
LEAST_SAVED = 10e-6
#: Number of consecutive long steps after which the team grows. A single one may be an outlier.
_LONG_STEPS = 4
#: Multiple of LEAST_SAVED at which one step suffices, even the first one, which is slowed by page faults.
_CERTAIN = 20
#: The first _TIMED steps are timed, and then every _EVERY-th step.
_TIMED, _EVERY = 16, 64


class GrowingTeam:
    """Team that runs steps on one thread, and on ``most`` threads once steps are long enough.

    ``make`` returns a team of the given number of threads for the same devices. Steps are measured in processor time,
    not in elapsed time, because a thread that waits for its core does not profit from more threads.
    """

    def __init__(self, make: Callable[[int], ThreadTeam], most: int, *, small: bool) -> None:
        """Begin with one thread if ``small``, otherwise with ``most`` threads."""
        self.most = most
        self._make = make
        self.threads = 1 if small else most
        self._team = make(self.threads)
        self._steps = self._long_steps = 0

    def run(self) -> None:
        """Run one step, and grow the team if steps have become long. Raises the errors of ``ThreadTeam.run``."""
        if self.threads == self.most or not self._is_timed():
            self._team.run()
            return
        start = time.thread_time()
        self._team.run()
        saved = (time.thread_time() - start) * (1 - 1 / self.most)
        self._long_steps = self._long_steps + 1 if saved > LEAST_SAVED else 0
        if self._long_steps == _LONG_STEPS or saved > _CERTAIN * LEAST_SAVED:
            self.threads = self.most
            self._team = self._make(self.threads)

    def _is_timed(self) -> bool:
        """Count the step and return whether its time is measured."""
        self._steps += 1
        return self._steps <= _TIMED or self._steps % _EVERY == 0
