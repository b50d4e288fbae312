"""Run random programs by the thousand: JAX in one process that lives long, this project in another.

JAX is some programs ahead. A program that passes leaves nothing behind; of the others the folder stays.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.zoo.generated.seeds import devices_of, name_of
from benchmarks.zoo.generated.worker import Worker, WorkerDiedError
from benchmarks.zoo.jobs import environment, run_on_ranks

#: Seconds for an answer, which are many, since the machine may do much else; answers of one process; programs that JAX
#: is ahead; programs of one MPI job.
PATIENCE, LIFE, AHEAD, BATCH = 900.0, 250, 12, 40


@dataclass(frozen=True)
class Found:
    """Verdict of one program: `outcome` is agrees, rounding, differs, refused, crashed or JAX; `said` details it."""

    seed: int
    outcome: str
    said: str = ""
    ranks: str = ""

    @property
    def passed(self) -> bool:
        return self.outcome in ("agrees", "rounding") and self.ranks in ("", "same bits")

    def __str__(self) -> str:
        ranks = f"; ranks: {self.ranks}" if self.ranks else ""
        return f"{name_of(self.seed)} on {devices_of(self.seed)}: {self.outcome} {self.said}{ranks}"


@dataclass
class Runner:
    """`work`: folder of cases; `ranks`: run each program that passes also on MPI ranks."""

    work: Path
    jax: str
    ranks: bool
    tally: Counter[str] = field(default_factory=Counter)
    all_passed: bool = True

    def folder(self, seed: int) -> Path:
        return self.work / name_of(seed) / str(devices_of(seed))

    def run(self, seeds: Iterable[int]) -> Iterator[Found]:
        """Yield the verdict of each program, in order but for those that wait for an MPI job."""
        jax = worker(self.jax, "jax_worker")
        ours = worker(sys.executable, "our_worker")
        waiting: dict[int, list[Found]] = defaultdict(list)

        def build(seed: int) -> tuple[int, str]:
            return seed, asked(jax, f"{seed} {self.folder(seed)}")

        try:
            for seed, written in ahead(build, seeds):
                found = self._judged(seed, written, ours)
                if not (self.ranks and found.passed):
                    yield self._done(found)
                    continue
                batch = waiting[devices_of(seed)]
                batch.append(found)
                if len(batch) == BATCH:
                    yield from self.on_ranks(waiting.pop(devices_of(seed)))
            for devices in sorted(waiting):
                yield from self.on_ranks(waiting[devices])
        finally:
            jax.close()
            ours.close()

    def _judged(self, seed: int, written: str, ours: Worker) -> Found:
        if written != "written":
            return Found(seed, "JAX", written)
        outcome, _, said = asked(ours, str(self.folder(seed))).partition(" ")
        return Found(seed, outcome, said)

    def on_ranks(self, batch: list[Found]) -> Iterator[Found]:
        """Run programs for the same number of devices in one MPI job."""
        folders = [self.folder(found.seed) for found in batch]
        run_on_ranks(folders, devices_of(batch[0].seed))
        for found, folder in zip(batch, folders, strict=True):
            said = json.loads((folder / "ranks.json").read_text())
            ranks = str(said.get("ranks") or f"crashed: {said['crashed']}")
            yield self._done(replace(found, ranks=ranks))

    def _done(self, found: Found) -> Found:
        bits = f", {found.ranks.split(':')[0]}" if found.ranks else ""
        self.tally[found.outcome + bits] += 1
        self.all_passed &= found.passed
        if found.passed:
            shutil.rmtree(self.work / name_of(found.seed), ignore_errors=True)
        return found


def worker(python: str, module: str) -> Worker:
    command = (python, "-m", f"benchmarks.zoo.generated.{module}")
    return Worker(command, environment(), PATIENCE, LIFE)


def asked(one: Worker, line: str) -> str:
    try:
        return one.ask(line)
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
