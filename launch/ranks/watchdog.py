"""Watchdog process of a rank: it detects failures that the rank cannot detect, and removes files after the job's end.

    python -m launch.ranks.watchdog LAUNCHER RANK stays|leaves [PATH ...]     standard input: a pipe from the rank

MPI_Init and MPI_Finalize wait for all ranks and cannot be interrupted, so a rank that is stopped (SIGSTOP) would block
the others for ever. The watchdog polls the launcher's ranks on this node. It ends the job if a rank stays stopped, or
if a rank has ended while this rank waits in MPI_Init. Lines on the pipe state for how long a rank may be stopped, that
this rank is about to enter MPI_Init, and that MPI has started. The watchdog then ends, unless it is the first of the
node. PATHs are files of the job. The watchdog removes these once the rank (the pipe's end) and the launcher have ended;
a launcher removes its own files unless it is killed. The watchdog also ends a launcher that outlives its ranks.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from collectives.communicator.liveness.process_state import ProcessId, children_of
from launch.ranks.rank_environment import (
    is_single_node_job,
    local_ranks_of_environment,
    own_launcher,
    world_of_environment,
)
from launch.ranks.single_report import claim_report

_POLL_SECONDS = 0.25

#: Seconds after which a job that has not started is ended, whatever the reason. Time in which one of its ranks waits
#: for a core does not count: on a loaded machine the start of eight ranks takes minutes.
_START_SECONDS = 120.0

#: Seconds that are added to the limit once ranks run: they then detect a stopped rank first, and report its position.
_LATER_SECONDS = 5.0

#: Seconds after the end of its last rank after which a launcher is assumed not to end by itself.
_LAUNCHER_SECONDS = 30.0

#: Seconds for which a rank may be missing during MPI_Init, unless the job's time limit is shorter. A launcher starts
#: all ranks of a node within a moment.
_MISSING_SECONDS = 10.0

_JOINS = "joins\n"
_STARTED = "started\n"
_STAYS = "stays"

#: Seconds for which the report stays claimed, so that ranks that receive SIGTERM do not report another reason.
_CLAIM_SECONDS = 1.0


class Watchdog:
    """A rank's side of its watchdog: the pipe, which closes when the rank ends for any reason."""

    def __init__(self, rank: int, paths: Sequence[Path], *, stays: bool) -> None:
        """Start the watchdog process of ``rank``.

        paths: files to remove after the end of the job. stays: whether the watchdog stays after MPI has started.
        """
        number = str(own_launcher().pid)
        arguments = [number, str(rank), _STAYS if stays else "leaves", *map(str, paths)]
        self._process = subprocess.Popen(
            (sys.executable, "-m", "launch.ranks.watchdog", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # the launcher ends a rank's process group, and a terminal its own
        )

    def limit(self, timeout_seconds: float) -> None:
        """Set for how many seconds a rank may be stopped. Before this call there is no limit."""
        self._tell(f"{timeout_seconds}\n")

    def joins(self) -> None:
        """Report that this rank enters MPI_Init, where it waits for all other ranks."""
        self._tell(_JOINS)

    def started(self) -> None:
        """Report that MPI_Init has returned."""
        self._tell(_STARTED)

    def _tell(self, line: str) -> None:
        """Write a line to the pipe, unless the watchdog has ended."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.write(line.encode())
            pipe.flush()


class _Verdict(NamedTuple):
    """Decision to end the job: ``why``, and ``ends``, the processes to kill, whose death ends the job."""

    why: str
    ends: tuple[ProcessId, ...]


class _Watch:
    """State of the ranks of one launcher on this node, with the time since which each is stopped."""

    def __init__(self, launcher: int, local_ranks: int | None = None) -> None:
        """Watch the ranks of the launcher with process number ``launcher``.

        local_ranks: the number of ranks that it starts on this node; None if it does not state it.
        """
        self._launcher = launcher
        self._local_ranks = local_ranks
        self._missing_since: float | None = None
        self.joins = False
        self.timeout_seconds = math.inf
        self._begin = self._last = time.monotonic()
        self._starting = 0.0
        self._queued: dict[ProcessId, float] = {}
        self._stopped: dict[ProcessId, float] = {}
        self.has_started = False

    def verdict(self) -> _Verdict | None:
        """Poll the ranks. Returns the reason to end the job, or None while it may go on."""
        now = time.monotonic()
        since_last = now - self._last
        if since_last > 10 * _POLL_SECONDS:  # this process was not running either
            self._stopped.clear()
            self._missing_since = None
            since_last = 0.0
        self._last = now
        found = [ProcessId.of(pid) for pid in children_of(self._launcher)]
        ranks = [process for process in found if process is not None]
        stopped = [process for process in ranks if process.is_stopped()]
        if len(stopped) == len(ranks):  # a job that is suspended entirely continues later
            stopped = []
        self._stopped = {one: self._stopped.get(one, now) for one in stopped}
        limit = self.timeout_seconds + (_LATER_SECONDS if self.has_started else 0.0)
        lost = [one for one, since in self._stopped.items() if now - since > limit]
        if lost:
            who = ", ".join(f"rank {_rank_of(one.pid)} (process {one.pid})" for one in lost)
            when = "" if self.has_started else " before MPI had started"
            return _Verdict(f"{who} is stopped (SIGSTOP) for {limit:g} s{when}", tuple(lost))
        if (missing := self._missing(ranks, now)) is not None:
            return missing
        self._starting += self._with_cores(ranks, since_last)
        if not self.has_started and self._starting > max(self.timeout_seconds, _START_SECONDS):
            seconds = now - self._begin
            return _Verdict(f"not all ranks have started within {seconds:.0f} s", tuple(ranks))
        return None

    def _missing(self, ranks: Sequence[ProcessId], now: float) -> _Verdict | None:
        """Return a verdict if a rank of this node has ended while this rank waits for it in MPI_Init, else None."""
        if not self.joins or self.has_started or self._local_ranks is None:
            return None
        alive = [one for one in ranks if not one.is_dead()]
        if len(alive) >= self._local_ranks:
            self._missing_since = None
            return None
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since <= min(self.timeout_seconds, _MISSING_SECONDS):
            return None
        who = _who_is_missing(alive, self._local_ranks)
        return _Verdict(f"{who} ended before MPI had started", tuple(alive))

    def _with_cores(self, ranks: Sequence[ProcessId], seconds: float) -> float:
        """Return the part of the ``seconds`` since the last poll in which every runnable rank had a core."""
        before, self._queued = self._queued, {one: one.queued_seconds() for one in ranks}
        lacked = (now - before.get(one, now) for one, now in self._queued.items())
        return max(0.0, seconds - max(lacked, default=0.0))


def main(launcher_pid: str, rank: str, stays: str, *paths: str) -> int:
    """Run the watchdog until the rank's pipe closes, or until MPI has started if it does not stay. Returns 0."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launcher = ProcessId.of(int(launcher_pid))
    if launcher is None:
        return 0
    watch = _Watch(launcher.pid, local_ranks_of_environment())
    has_ended = False
    while True:
        readable, _, _ = select.select([0], [], [], _POLL_SECONDS)
        said = os.read(0, 4096).decode() if readable else ""
        if readable and not said:
            break
        for line in said.splitlines(keepends=True):
            if line == _JOINS:
                watch.joins = True
                continue
            if line != _STARTED:
                watch.timeout_seconds = float(line)
                continue
            if stays != _STAYS:
                return 0
            watch.has_started = True
        verdict = None if has_ended else watch.verdict()
        if verdict is not None:
            _end_job(launcher, rank, verdict)
            has_ended = True
    if has_ended:
        time.sleep(_CLAIM_SECONDS)
    # The launcher waits for all processes that have its ranks' standard error open.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _sweep(launcher, paths)
    return 0


def _end_job(launcher: ProcessId, rank: str, verdict: _Verdict) -> None:
    """Report the verdict and kill its processes, if this process is the first of the node to claim the report."""
    if not claim_report(launcher):
        return
    sys.stderr.write(f"spmd: error: [rank {rank}] {verdict.why}\n")
    sys.stderr.flush()
    for process in verdict.ends:
        if not process.is_dead():
            os.kill(process.pid, signal.SIGKILL)


def _sweep(launcher: ProcessId, paths: Sequence[str]) -> None:
    """Wait for the end of the launcher, which is ended if it outlives its ranks, and remove ``paths``."""
    waits_in_vain = _launcher_timeout(launcher) if is_single_node_job() else None
    while not launcher.is_dead():
        time.sleep(0.1)
        if waits_in_vain is not None and waits_in_vain():
            _end_launcher(launcher)
            waits_in_vain = None
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _launcher_timeout(launcher: ProcessId) -> Callable[[], bool]:
    """Return a function that returns whether ``launcher`` has had no rank for ``_LAUNCHER_SECONDS``.

    The function looks for ranks at most once per tenth of that time.
    """
    last = next_look = time.monotonic()

    def is_over() -> bool:
        nonlocal last, next_look
        now = time.monotonic()
        if now < next_look:
            return False
        next_look = now + _LAUNCHER_SECONDS / 10
        ranks = (ProcessId.of(pid) for pid in children_of(launcher.pid))
        if launcher.is_stopped() or any(one is not None and not one.is_dead() for one in ranks):
            last = now
        return now - last > _LAUNCHER_SECONDS

    return is_over


def _end_launcher(launcher: ProcessId) -> None:
    """End a launcher that does not notice that its ranks have ended.

    The message is written to the launcher's standard error, since this process has closed its own.
    """
    what = f"did not end within {_LAUNCHER_SECONDS:g} s after its ranks"
    with contextlib.suppress(OSError), Path(f"/proc/{launcher.pid}/fd/2").open("a") as errors:
        errors.write(f"spmd: error: the launcher (process {launcher.pid}) {what}\n")
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not launcher.is_dead():
            os.kill(launcher.pid, number)
            time.sleep(_LAUNCHER_SECONDS / 10)


def _who_is_missing(alive: Sequence[ProcessId], local_ranks: int) -> str:
    """Name the ranks of this node that are not alive. If the job may have other nodes, return their number instead."""
    found = {_rank_of(one.pid) for one in alive}
    names = [number for number in map(str, range(local_ranks)) if number not in found]
    if not is_single_node_job() or "?" in found:
        return f"{local_ranks - len(alive)} of {local_ranks} ranks of this node"
    return f"rank{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _rank_of(pid: int) -> str:
    """Return the rank of process ``pid`` by its environment; "?" if that cannot be read or states no rank."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return "?"
    entries = (entry.partition("=") for entry in data.decode(errors="replace").split("\0"))
    found = world_of_environment({name: value for name, _, value in entries})
    return "?" if found is None else str(found[0])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
