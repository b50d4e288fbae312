"""Processes of the zoo: JAX or TensorFlow, which write cases, and this project, which runs them alone or on MPI ranks.

Many cases go through one process, since to start one takes longer than most programs. A process that dies, or gives no
result for a while, is the fault of the first case that it left; another process goes on behind that one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing.program import without_misleading

#: Seconds that JAX may take to build a program, and this project for a case.
JAX_PATIENCE, PATIENCE = 600.0, 1200.0
#: Seconds between two looks at what a process has written, and those that it gets to end when told to.
_LOOK, _END = 0.2, 30.0


@dataclass(frozen=True)
class Work:
    """One case for a process: it is done when all files of `done` exist. An error message is written to `failed`."""

    argument: str
    done: tuple[Path, ...]
    failed: Path

    @property
    def is_left(self) -> bool:
        return not self.failed.exists() and not all(path.exists() for path in self.done)


def finish(command: Sequence[str], works: Sequence[Work], patience: float) -> None:
    """Run `command` with the arguments of `works` until each is done, or has failed."""
    while left := [work for work in works if work.is_left]:
        said = outcome([*command, *(work.argument for work in left)], left, patience)
        if left[0].is_left:
            left[0].failed.parent.mkdir(parents=True, exist_ok=True)
            left[0].failed.write_text(json.dumps({"crashed": said}))


def outcome(command: Sequence[str], works: Sequence[Work], patience: float) -> str:
    """Run a process to its end, and say how it ended; it is ended where it finishes no work for `patience` seconds."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, env=environment()
        )
        left, since = len(works), time.monotonic()
        while process.poll() is None:
            time.sleep(_LOOK)
            now = sum(work.is_left for work in works)
            if now < left:
                left, since = now, time.monotonic()
            if time.monotonic() - since > patience:
                end(process)
                return f"no end within {patience:g} s"
        errors.seek(0)
        return f"process ended with {process.returncode}: {last_line(errors.read().decode(errors='replace'))}"


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def environment() -> dict[str, str]:
    own = {"PYTHONPATH": str(Path.cwd()), "SPMD_PROGRAM_CACHE": "off"}
    return {**without_misleading(os.environ), **own}


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no output"


def build(
    command: Sequence[str], names: Sequence[str], counts: Sequence[int], folder: Path
) -> None:
    """Have `command` write the cases that are not there yet; error.json of a program says why it cannot."""
    options = ["--folder", str(folder), "--devices", ",".join(map(str, counts)), "--names"]
    works = [
        Work(
            name,
            tuple(folder / name / str(count) / "case.json" for count in counts),
            folder / name / "error.json",
        )
        for name in names
    ]
    finish([*command, *options], works, JAX_PATIENCE)


def calls_python(case: Path) -> bool:
    """Return whether the program calls Python functions, which are in no file."""
    return bool(json.loads((case / "case.json").read_text()).get("calls_python"))


def run_here(cases: Sequence[Path], jax: str) -> None:
    """Run cases in this process's Python; those that call Python functions in `jax`, a Python that has JAX."""
    for python, calls in ((sys.executable, False), (jax, True)):
        works = [
            Work(str(case), (case / "ours.json",), case / "ours.json")
            for case in cases
            if calls_python(case) is calls
        ]
        finish([python, "-m", "benchmarks.zoo.ours"], works, PATIENCE)


def run_on_ranks(cases: Sequence[Path], ranks: int) -> None:
    """Run cases in one MPI job, and in another behind each that ends a job."""
    command = [sys.executable, "-m", "launch.mpirun", "-n", str(ranks), "--"]
    command += ["-m", "benchmarks.zoo.ranks"]
    works = [Work(str(case), (case / "ranks.json",), case / "ranks.json") for case in cases]
    finish(command, works, PATIENCE)
