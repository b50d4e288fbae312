"""A crew: the devices of one process on as many threads as it has cores, in native code from step to step."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from collectives.communicator.interface import PeerFailedError
from runtime.cpu.step.segment_ir import SegmentRow
from runtime.cpu.step.thread_team_ir import CrewWord, LaneStop, crew_code
from runtime.cpu.step.worker import Lane
from runtime.cpu.step.worker_ir import LaneWord
from spmd.literal import NDArray

_IDLE_LOOKS = 8_000
"""Looks for the next step, some 2 ms, before a lane's thread sleeps: to wake it takes a quarter of a millisecond."""

_JOIN_SECONDS = 50e-6
_FAILURE_SECONDS = 60.0
"""How long a failed step waits for the other lanes to notice; their memory is kept for ever if they do not."""

_abandoned: list[tuple[Lane, ...]] = []


class Crew:
    """``lanes[0]`` is run by the thread that calls ``run``, each other one by a thread of its own.

    After a step that failed it is of no more use.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        fail: Callable[[Lane, BaseException], None],
        cores: int = 1,
    ) -> None:
        """``fail``: tell the other lanes that one has failed, so that their waits end.

        cores: for each lane; the ones beyond its own have helpers, threads that share in the devices' work, where there
        is work to share.
        """
        self._working = len(lanes)
        shared = any(table.has_shares for lane in lanes for table in lane.tables)
        helpers = len(lanes) * (cores - 1) if shared else 0
        self.has_helpers = helpers > 0
        self._lanes = (*lanes, *(_helper(len(lanes)) for _ in range(helpers)))
        if self.has_helpers:
            for lane in lanes:
                lane.offer_shares()
        self._fail = fail
        self._failed = _Failures()
        self._list = np.array([lane.address for lane in self._lanes], np.int64)
        self._words = np.zeros(len(CrewWord), np.int64)
        self._words[CrewWord.LANES] = len(self._lanes)
        self._words[CrewWord.LANE_LIST] = self._list.ctypes.data
        self._words[CrewWord.WORKING] = len(lanes)
        self._argument = ctypes.c_void_p(self._words.ctypes.data)
        self._run = crew_code().crew
        for number, lane in enumerate(self._lanes[1:], 1):
            lane[LaneWord.PATIENCE] = _IDLE_LOOKS
            lane[LaneWord.LANES] = self._list.ctypes.data
            lane[LaneWord.EARLIER] = number
            serving = (lane, fail, self._failed, (self._lanes, self._list))
            threading.Thread(
                target=_serve, args=serving, name=f"lane {number}", daemon=True
            ).start()
        self._retire = weakref.finalize(self, _retire, self._lanes[1:])

    def run(self) -> None:
        """One step. Of several errors the first one that is not another's consequence is raised."""
        own = self._lanes[0]
        try:
            stop = self._run(self._argument, 1)
            while stop:
                if stop == LaneStop.JOINING:
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
        """Nobody may free what the other lanes still work on. Helpers have nothing of a share that is done."""
        deadline = time.monotonic() + _FAILURE_SECONDS
        others = self._lanes[1 : self._working]
        while any(lane[LaneWord.DONE] != lane[LaneWord.ASKED] for lane in others):
            if time.monotonic() > deadline:
                _abandoned.append(self._lanes)
                return
            time.sleep(_JOIN_SECONDS)


def _helper(helped: int) -> Lane:
    """A lane without devices, for those of the first ``helped`` lanes."""

    def wait(_rank: int, _row: SegmentRow) -> bool:
        raise AssertionError("a lane without devices waits for nobody")

    lane = Lane((), wait)
    lane[LaneWord.HELPED] = helped
    return lane


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
    lane: Lane,
    fail: Callable[[Lane, BaseException], None],
    failures: _Failures,
    _alive: tuple[Sequence[Lane], NDArray],
) -> None:
    """Run a worker's thread: step after step, until it is retired or an error occurs.

    ``_alive``: what its native code reads.
    """
    serve, argument = crew_code().serve, ctypes.c_void_p(lane.address)
    stop = serve(argument, 0)
    try:
        while stop != LaneStop.RETIRED:
            lane.attend(stop)
            stop = serve(argument, 1)
    except BaseException as error:  # noqa: BLE001 - carried to the thread that runs the step
        failures.add(error)
        fail(lane, error)
        lane[LaneWord.DONE] = lane[LaneWord.ASKED]


def _retire(lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        crew_code().retire(lane.address)
