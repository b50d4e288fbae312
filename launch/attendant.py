"""A process beside a rank: it sees what the rank cannot see itself, and sweeps up when nobody else is left to.

    python -m launch.attendant LAUNCHER RANK TIMEOUT [PATH ...]      standard input: a pipe from the rank

MPI starts and ends in calls that wait for all ranks and cannot be interrupted; a rank that is stopped meanwhile would
hold up the others for ever. The attendant looks at the launcher's other ranks on this node: one that stays stopped
ends the job. A line on the pipe says that the rank has started; from then on it stays only if it has PATHs: files of
the job, removed once the rank (the pipe's end) and the launcher are gone. Launchers do it themselves, unless killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from collectives.communicator.processes import ProcessId, children_of
from launch.one_report import claim_report
from launch.rank_environment import own_launcher, world_of_environment

_GLANCE_SECONDS = 0.25

#: After this long a job that has not started is given up, whatever the reason.
_START_SECONDS = 120.0

#: Once they run, ranks find who is stopped, and say where; the attendant comes in where they cannot.
_LATER_SECONDS = 5.0


class Attendant:
    """A rank's end of it: the pipe. It closes when the rank ends, however that happens."""

    def __init__(self, rank: int, timeout_seconds: float, paths: Sequence[Path]) -> None:
        """``paths``: what is removed if the launcher has not done it."""
        arguments = [str(own_launcher().pid), str(rank), str(timeout_seconds), *map(str, paths)]
        self._process = subprocess.Popen(
            (sys.executable, "-m", "launch.attendant", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # the launcher ends a rank's process group, and a terminal its own
        )

    def started(self) -> None:
        """MPI has started."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.write(b"\n")
            pipe.flush()


class _Watch:
    """The ranks of one launcher on this node, and since when each is stopped."""

    def __init__(self, launcher: int, timeout_seconds: float) -> None:
        self._launcher = launcher
        self._timeout = timeout_seconds
        self._begin = self._last = time.monotonic()
        self._stopped: dict[ProcessId, float] = {}
        self.has_started = False

    def verdict(self) -> str:
        """Why the job has to end; empty while it may go on."""
        now = time.monotonic()
        if now - self._last > 10 * _GLANCE_SECONDS:  # this process was not running either
            self._stopped.clear()
        self._last = now
        found = [ProcessId.of(pid) for pid in children_of(self._launcher)]
        ranks = [process for process in found if process is not None]
        stopped = [process for process in ranks if process.is_stopped()]
        if len(stopped) == len(ranks):  # a job that is suspended as a whole goes on later
            stopped = []
        self._stopped = {one: self._stopped.get(one, now) for one in stopped}
        limit = self._timeout + (_LATER_SECONDS if self.has_started else 0.0)
        lost = [one for one, since in self._stopped.items() if now - since > limit]
        if lost:
            who = ", ".join(f"rank {_rank_of(one.pid)} (process {one.pid})" for one in lost)
            when = "" if self.has_started else " before MPI had started"
            return f"{who} is stopped (SIGSTOP) for {limit:g} s{when}; ending the job"
        if not self.has_started and now - self._begin > max(self._timeout, _START_SECONDS):
            return f"not all ranks have started within {now - self._begin:.0f} s; ending the job"
        return ""


def main(launcher_pid: str, rank: str, timeout: str, *paths: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launcher = ProcessId.of(int(launcher_pid))
    if launcher is None:
        return 0
    watch = _Watch(launcher.pid, float(timeout))
    while True:
        readable, _, _ = select.select([0], [], [], _GLANCE_SECONDS)
        if readable:
            if not os.read(0, 1):
                break
            if not paths:
                return 0
            watch.has_started = True
        verdict = watch.verdict()
        if verdict:
            _end_job(launcher, rank, verdict)
    # The launcher waits for whoever holds its ranks' standard error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _sweep(launcher, paths)
    return 0


def _end_job(launcher: ProcessId, rank: str, verdict: str) -> None:
    """Every attendant comes to the same verdict; the first one says it."""
    if claim_report(launcher):
        sys.stderr.write(f"spmd: error: [rank {rank}] {verdict}\n")
        sys.stderr.flush()
    else:
        time.sleep(1)
    if not launcher.is_dead():
        os.kill(launcher.pid, signal.SIGTERM)
    time.sleep(5)  # and the rank ends, and with it the pipe


def _sweep(launcher: ProcessId, paths: Sequence[str]) -> None:
    while not launcher.is_dead():
        time.sleep(0.1)
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _rank_of(pid: int) -> str:
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return "?"
    entries = (entry.partition("=") for entry in data.decode(errors="replace").split("\0"))
    found = world_of_environment({name: value for name, _, value in entries})
    return "?" if found is None else str(found[0])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
