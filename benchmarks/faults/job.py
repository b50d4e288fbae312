"""A job that harm is done to: its command, its processes, what it says and leaves."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from launch.mpirun import MpiJob

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = {"mlp_dp2": 2, "gpt_dp2tp2": 4, "ring_attention4": 4, "mlp_fsdp8": 8}
SHM = Path("/dev/shm")
SPMD = (sys.executable, "-m", "launch")

#: In the environment of all processes of a job.
MARK = "FAULT_RUN"

#: Seconds from the start of a run whose harm has no moment, and for ranks to come to what is planted in one of them: on
#: two cores that twenty others want as well, eight ranks take two minutes to start.
WHOLE_LIMIT = 300.0


@dataclass
class Job:
    """A job under way: its launcher, and what it says."""

    command: list[str]
    environment: dict[str, str]
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        self.scratch = tempfile.TemporaryDirectory(prefix="fault-run-")
        own = {**self.environment, MARK: self.mark, "TMPDIR": self.scratch.name}
        self.said = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env={**os.environ, **own},
            stdout=self.said,
            stderr=self.said,
            start_new_session=True,
        )

    def text(self) -> str:
        """Return what the job has said so far.

        Its processes write at the position of this file, which therefore does not move.
        """
        file = self.said.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def processes(self) -> dict[int, dict[str, str]]:
        """Environments of all processes that this job has started, by process number."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                environment = environment_of(entry)
                if environment.get(MARK) == self.mark:
                    found[int(entry.name)] = environment
        return found

    def rank(self, number: int, seconds: float = WHOLE_LIMIT) -> int | None:
        """The process of a rank, once there is one; None when the job has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if number in (found := self.ranks()):
                return found[number]
            time.sleep(0.02)
        return None

    def ranks(self) -> dict[int, int]:
        """Processes by rank: those that there are now."""
        found = {}
        for pid, environment in self.processes().items():
            number = environment.get("OMPI_COMM_WORLD_RANK")
            if number is not None and is_rank(pid):
                found[int(number)] = pid
        return found

    def mpirun(self, seconds: float = 20) -> int | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for pid in self.processes():
                words = command_line(pid)
                if Path(words[0]).name in ("mpirun", "prterun") and "-n" in words:
                    return pid
            time.sleep(0.01)
        return None

    def planted_at(self, seconds: float = WHOLE_LIMIT) -> float | None:
        """When the fault program came to its defect (monotonic), once it has said so; None when the job has ended."""
        deadline = time.monotonic() + seconds
        found = None
        while found is None and time.monotonic() < deadline:
            has_ended = self.process.poll() is not None
            found = re.search(r"^planted at (\d+\.\d+)$", self.text(), re.MULTILINE)
            if has_ended:
                break
            time.sleep(0.02)
        return float(found[1]) if found else None

    def files(self) -> list[str]:
        return [str(path) for path in Path(self.scratch.name).iterdir()]

    def close(self) -> None:
        for pid in self.processes():
            strike(pid, signal.SIGKILL)
        self.process.wait()
        self.said.close()
        self.scratch.cleanup()


def environment_of(process: Path) -> dict[str, str]:
    try:
        data = (process / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    entries = (entry.partition("=") for entry in data.split("\0") if entry)
    return {name: value for name, _, value in entries}


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def strike(pid: int | None, number: signal.Signals) -> None:
    """Send the signal, unless the process is gone."""
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_rank(pid: int) -> bool:
    words = command_line(pid)
    return "launch.ranks.watchdog" not in words and any("python" in word for word in words[:1])


def wait_for_none(job: Job, seconds: float, *, attendants: bool = True) -> list[int]:
    """The job's processes after at most so long."""
    deadline = time.monotonic() + seconds
    while True:
        left = [pid for pid in job.processes() if attendants or is_rank(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def launched(case: str, *options: str, spmd: tuple[str, ...] = SPMD) -> list[str]:
    """The case under `spmd launch`, or another program of ours under the same mpirun line."""
    ranks = ("-n", str(CASES[case]), "--")
    run = ("run", str(ROOT / "tests" / "cases" / case / "module.hlo"), *options)
    if spmd is SPMD:
        return [*SPMD, "launch", *ranks, *run]
    return [sys.executable, "-m", "launch.mpirun", *ranks, *spmd[1:], *run]


def colon_line(commands: list[tuple[tuple[str, ...], dict[str, str]]]) -> list[str]:
    """One rank for each command and its own environment (mpirun's colon form)."""
    line = MpiJob(1, ()).arguments()[:1]
    for number, (command, own) in enumerate(commands):
        settings = ["env", *(f"{name}={value}" for name, value in own.items())] if own else []
        line += [*([":"] if number else []), "-n", "1", *settings, *command]
    return line
