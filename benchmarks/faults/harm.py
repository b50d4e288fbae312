"""Kinds of harm to jobs: each one starts a job, does the harm, and says what has to come of it."""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.faults.job import (
    CASES,
    ROOT,
    SHM,
    SPMD,
    WHOLE_LIMIT,
    Job,
    colon_line,
    launched,
    strike,
    wait_for_none,
)
from launch.mpirun import MpiJob

FAULTY = (sys.executable, str(ROOT / "benchmarks" / "faults" / "program.py"))
MANY = "1000000"

#: Seconds from the harm to the end of everything: a rank that dies ends the job within 10 s; --timeout 3 and ten.
END_LIMIT = 10.0
STOP_LIMIT = 13.0
#: A jolt at most, and from one to the next; from look to look at which ranks there are.
JOLT_SECONDS = 0.1
LOOK_SECONDS = 1.0
#: After a job's end, for processes that are just going.
GRACE = 3.0


@dataclass(frozen=True)
class Harm:
    """Harm that was done to a job, and what its messages have to say.

    ``at`` is its time (monotonic); None where it was there from the start, or never was. ``codes`` are the exit codes
    that the command may have.
    """

    at: float | None
    culprit: str
    codes: frozenset[int]
    limit: float = END_LIMIT


def arrays_of(case: str) -> tuple[str, ...]:
    """Options: its inputs, and the outputs to compare with."""
    folder = ROOT / "tests" / "cases" / case
    return ("--inputs", str(folder / "inputs.npz"), "--expect", str(folder / "expected.npz"))


Kind: TypeAlias = Callable[[random.Random, str], tuple[Job, Harm]]
"""(chance, case) -> a job under way and what has happened to it."""


def any_time(chance: random.Random, case: str) -> float:
    """Seconds after a process has begun: as it starts, or as it runs."""
    return chance.uniform(0, 2.5 + CASES[case])


def signalled(number: signal.Signals, harm: Callable[[int, int], Harm], *options: str) -> Kind:
    """Send a signal to a rank at a random time."""

    def start(chance: random.Random, case: str) -> tuple[Job, Harm]:
        job = Job(launched(case, "--steps", MANY, *options), {})
        rank = chance.randrange(CASES[case])
        pid = job.rank(rank)
        time.sleep(any_time(chance, case))
        strike(pid, number)
        return job, harm(rank, CASES[case])

    return start


def killed(rank: int, _: int) -> Harm:
    return Harm(time.monotonic(), rf"rank {rank}\b", frozenset({3}))


def stopped(rank: int, _: int) -> Harm:
    return Harm(time.monotonic(), rf"rank {rank} .*is stopped", frozenset({3}), STOP_LIMIT)


def interrupted(rank: int, _: int) -> Harm:
    return Harm(time.monotonic(), rf"rank {rank}\b|@1,{rank}\]", frozenset({3}))


def planted(
    defect: str, culprit: str, limit: float = END_LIMIT, *, between_steps: bool = False
) -> Kind:
    """One thunk of one rank does not do what it should, or what the rank does before a step does not."""

    def start(chance: random.Random, case: str) -> tuple[Job, Harm]:
        rank, thunk, run = (
            chance.randrange(CASES[case]),
            chance.randrange(10000),
            chance.randint(1, 5),
        )
        place = "between" if between_steps else str(thunk)
        faulty = (*FAULTY, str(rank), place, str(run), defect)
        options = ("--steps", MANY, "--timeout", "3")
        job = Job(launched(case, *options, spmd=faulty), {})
        return job, Harm(job.planted_at(), culprit.format(rank=rank), frozenset({3}), limit)

    return start


def differing(what: str) -> Kind:
    """One rank has another module, option or environment."""

    def start(chance: random.Random, case: str) -> tuple[Job, Harm]:
        ranks, odd = CASES[case], chance.randrange(CASES[case])
        if ranks == 2:
            odd = 1  # of two that differ, the second is called odd
        module = ROOT / "tests" / "cases" / case / "module.hlo"
        usual: tuple[tuple[str, ...], dict[str, str]] = ((*SPMD, "run", str(module)), {})
        other = usual
        scratch = Path(tempfile.mkdtemp(prefix="fault-module-"))
        if what == "module":
            (scratch / "module.hlo").write_text(module.read_text() + "\n// another one\n")
            other = ((*SPMD, "run", str(scratch / "module.hlo")), {})
        if what == "option":
            option = chance.choice([("--steps", "7"), ("--seed", "3"), ("--outputs", os.devnull)])
            other = ((*SPMD, "run", str(module), *option), {})
        if what == "environment":
            setting = chance.choice([("OPENBLAS_NUM_THREADS", "2"), ("SPMD_ANYTHING", "1")])
            other = (usual[0], dict([setting]))
        commands = [other if rank == odd else usual for rank in range(ranks)]
        job = Job(colon_line(commands), MpiJob(ranks, ()).environment(os.environ))
        return job, Harm(None, rf"do not have the same .*rank {odd}:", frozenset({2}))

    return start


def launcher_killed(chance: random.Random, case: str) -> tuple[Job, Harm]:
    job = Job(launched(case, "--steps", MANY), {})
    pid = job.mpirun()
    time.sleep(any_time(chance, case))
    strike(pid, signal.SIGKILL)
    return job, Harm(time.monotonic(), r"launcher \(mpirun\) was ended by SIGKILL", frozenset({3}))


def command_signalled(number: signal.Signals, codes: frozenset[int]) -> Kind:
    """`spmd launch` itself gets a signal; nobody is left to say anything, and nothing need be said."""

    def start(chance: random.Random, case: str) -> tuple[Job, Harm]:
        job = Job(launched(case, "--steps", MANY), {})
        job.mpirun()
        time.sleep(any_time(chance, case))
        os.kill(job.process.pid, number)
        return job, Harm(time.monotonic(), "", codes)

    return start


def no_room(chance: random.Random, case: str) -> tuple[Job, Harm]:
    """/dev/shm is full: the job runs all the same."""
    filler = SHM / f"filler-{uuid.uuid4().hex}"
    status = os.statvfs(SHM)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(status.f_bavail - 16, 1) * status.f_frsize)
    job = Job(launched(case, "--steps", "3"), {})
    job.process.wait()
    filler.unlink()
    return job, Harm(None, r"has no room", frozenset({0}))


def jolted(chance: random.Random, case: str) -> tuple[Job, Harm]:
    """A start with nothing in the cache of programs; ranks lose the core for a moment again and again: all goes well.

    What a busy machine does to ranks, where it hurts most: anywhere.
    """
    with tempfile.TemporaryDirectory(prefix="fault-cache-") as cache:
        job = Job(launched(case, *arrays_of(case)), {"SPMD_OBJECT_CACHE": f"{cache}/objects"})
        ranks: list[int] = []
        looked = -math.inf
        while job.process.poll() is None and time.monotonic() - job.begun < WHOLE_LIMIT:
            if time.monotonic() - looked > LOOK_SECONDS:
                ranks, looked = list(job.ranks().values()), time.monotonic()
            if ranks:
                pid = chance.choice(ranks)
                strike(pid, signal.SIGSTOP)
                time.sleep(chance.random() ** 2 * JOLT_SECONDS)
                strike(pid, signal.SIGCONT)
            time.sleep(chance.random() * JOLT_SECONDS)
    return job, Harm(None, r"outputs agree", frozenset({0}))


def two_jobs(chance: random.Random, case: str) -> tuple[Job, Harm]:
    """A rank of another job beside this one is killed: this one goes on and is right."""
    beside, _ = signalled(signal.SIGKILL, killed)(chance, case)
    job = Job(launched(case, *arrays_of(case)), {})
    job.process.wait()
    beside.process.wait()
    remaining = wait_for_none(beside, GRACE)
    beside.close()
    culprit = r"outputs agree" if not remaining else "the other job has left processes"
    return job, Harm(None, culprit, frozenset({0}))


_TRACEBACK = r"rank {rank}/\d+\] .*Traceback(.|\n)*PlantedError: planted"

KINDS: dict[str, Kind] = {
    "kill": signalled(signal.SIGKILL, killed),
    "stop": signalled(signal.SIGSTOP, stopped, "--timeout", "3"),
    "interrupt": signalled(signal.SIGINT, interrupted),
    "exception": planted("raise", _TRACEBACK),
    "exit": planted("exit", r"rank {rank}\b"),
    "hang": planted("hang", r"rank {rank} ", STOP_LIMIT),
    "between": planted("raise", _TRACEBACK, between_steps=True),
    "away": planted("hang", r"rank {rank} ", STOP_LIMIT, between_steps=True),
    "module": differing("module"),
    "option": differing("option"),
    "environment": differing("environment"),
    "mpirun": launcher_killed,
    "ctrl-c": command_signalled(signal.SIGINT, frozenset({130})),
    "launch": command_signalled(signal.SIGKILL, frozenset({-signal.SIGKILL})),
    "full": no_room,
    "two": two_jobs,
    "jolts": jolted,
}
