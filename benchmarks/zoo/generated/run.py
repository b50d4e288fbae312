"""Run random programs by the thousand: JAX in one process that lives long, this project in another.

JAX is some programs ahead. A program that agrees leaves nothing behind; of the others the folder stays. One that
differs is built once more as programs of the zoo are, with all of JAX's runs, which has the last word.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.zoo.generated.seeds import devices_of, name_of
from benchmarks.zoo.generated.worker import Worker, WorkerDiedError
from benchmarks.zoo.results import worst_of

#: Seconds for an answer, which are many, since the machine may do much else; answers of one process; programs that JAX
#: is ahead; programs of one MPI job.
PATIENCE, LIFE, AHEAD, BATCH = 900.0, 250, 12, 40


@dataclass(frozen=True)
class Found:
    """What came of one program: `verdict` is agrees, differs, refused, crashed or JAX, `said` the details."""

    seed: int
    verdict: str
    said: str = ""
    ranks: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict == "agrees" and self.ranks in ("", "same bits")

    def __str__(self) -> str:
        ranks = f"; ranks: {self.ranks}" if self.ranks else ""
        return f"{name_of(self.seed)} on {devices_of(self.seed)}: {self.verdict} {self.said}{ranks}"


@dataclass
class Runner:
    """`work`: folder of cases; `ranks`: run each program that ran also on MPI ranks; `confirm`: what says whether a
    program that seems to differ does.
    """

    work: Path
    jax: str
    ranks: bool
    confirm: Callable[[int], str]
    tally: Counter[str] = field(default_factory=Counter)
    _waiting: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def folder(self, seed: int) -> Path:
        return self.work / name_of(seed) / str(devices_of(seed))

    def run(self, seeds: Iterable[int]) -> Iterator[Found]:
        """What came of each program, in order but for those that wait for an MPI job."""
        jax = Worker(
            (self.jax, "-m", f"{_PACKAGE}.jax_worker"), self._environment(), PATIENCE, LIFE
        )
        ours = Worker(
            (sys.executable, "-m", f"{_PACKAGE}.our_worker"), self._environment(), PATIENCE, LIFE
        )

        def build(seed: int) -> tuple[int, str]:
            return seed, _asked(jax, f"{seed} {self.folder(seed)}")

        try:
            for seed, written in ahead(build, seeds):
                yield from self._taken(seed, written, ours)
            for devices in sorted(self._waiting):
                yield from self.on_ranks(devices, self._waiting[devices])
        finally:
            jax.close()
            ours.close()

    def _taken(self, seed: int, written: str, ours: Worker) -> Iterator[Found]:
        found = self._judged(seed, written, ours)
        if self.ranks and found.verdict == "agrees":
            devices = devices_of(seed)
            self._waiting[devices].append(seed)
            if len(self._waiting[devices]) >= BATCH:
                yield from self.on_ranks(devices, self._waiting.pop(devices))
        else:
            yield self._done(found)

    def _judged(self, seed: int, written: str, ours: Worker) -> Found:
        if written != "written":
            return Found(seed, "JAX", written)
        verdict, _, said = _asked(ours, str(self.folder(seed))).partition(" ")
        if verdict != "ran":
            return Found(seed, verdict, said)
        worst = worst_of(self.folder(seed))
        if worst is None or worst.agrees:
            return Found(seed, "agrees")
        said = self.confirm(seed)
        return Found(seed, "agrees" if said == "agrees" else "differs", said)

    def _done(self, found: Found) -> Found:
        self.tally[
            found.verdict if found.passed else f"{found.verdict}{found.ranks and ', ranks'}"
        ] += 1
        if found.passed:
            shutil.rmtree(self.work / name_of(found.seed), ignore_errors=True)
        return found

    def on_ranks(self, devices: int, seeds: list[int]) -> Iterator[Found]:
        """Run programs in one job; if it dies, the first that it left is the cause, and another job goes on."""
        left = list(seeds)
        while left:
            said = self._job(devices, left)
            for seed in [seed for seed in left if self.ranks_file(seed).exists()]:
                yield self._done(Found(seed, "agrees", "", self.ranks_file(seed).read_text()))
                left.remove(seed)
            if left:
                yield self._done(Found(left.pop(0), "agrees", "", said))

    def ranks_file(self, seed: int) -> Path:
        return self.folder(seed) / "ranks.txt"

    def _job(self, devices: int, seeds: list[int]) -> str:
        folders = [str(self.folder(seed)) for seed in seeds]
        command = [sys.executable, "-m", "launch.mpirun", "-n", str(devices), "--"]
        command += ["-m", f"{_PACKAGE}.rank_worker", *folders]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=PATIENCE + 20 * len(seeds),
                env=self._environment(),
            )
        except subprocess.TimeoutExpired:
            return "no end"
        lines = done.stderr.strip().splitlines()
        return (
            f"the job ended with {done.returncode}: {lines[-1][:200] if lines else 'nothing said'}"
        )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(Path.cwd()),
            "SPMD_PROGRAM_CACHE": "off",
            "SPMD_OBJECT_CACHE": str(self.work / "objects"),
        }


_PACKAGE = "benchmarks.zoo.generated"


def _asked(worker: Worker, line: str) -> str:
    try:
        return worker.ask(line)
    except WorkerDiedError as error:
        return f"crashed {error}"


def ahead(
    build: Callable[[int], tuple[int, str]], seeds: Iterable[int]
) -> Iterator[tuple[int, str]]:
    """Results of `build`, which a thread calls for the next seeds while the caller works on one."""
    waiting: deque[Future[tuple[int, str]]] = deque()
    with ThreadPoolExecutor(1) as thread:
        for seed in seeds:
            waiting.append(thread.submit(build, seed))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
