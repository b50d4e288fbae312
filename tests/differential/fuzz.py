"""Random programs through the equivalence checkers.

    python -m tests.differential.fuzz --count 5000 --seed 0        exit code 1 where a program fails
    python -m tests.differential.fuzz --seed 121 --count 1 --out failures
    python -m tests.differential.fuzz --through optimized           each device's program before and after the passes
    python -m tests.differential.fuzz --through executed            through all stages, on loopback devices
    python -m tests.differential.fuzz --focus each                  every operation of the table in turn
    python -m tests.differential.fuzz --count 20000 --jobs 2 --table counts.md     and what was tried, also as counts.json

A seed is one program, whatever the other seeds, the processes and the machine: a run that was cut short goes on with
--seed and --count. It prints how far it is, programs per second, how many differ in any bit though they are no
failures, and the largest difference over its tolerance.

Each failing seed is shrunk and written to OUT/seed_N.hlo, which --replay runs again (and so does test_regressions.py
for the files in tests/differential/regressions).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import spmd
from spmd.errors import SpmdError
from spmd.hlo import HloModule
from spmd.passes.minimize import minimize
from tests.differential.cells import Cell
from tests.differential.coverage import Counts, cells_of, features_of
from tests.differential.equivalence import (
    Array,
    Comparison,
    NotEquivalentError,
    check_execution,
    check_partitioned,
)
from tests.differential.generator.table import OPERATIONS
from tests.differential.generator.writer import inputs_of
from tests.differential.optimized import check_optimized
from tests.differential.tiling import TilingError
from tests.strategies import Program, generate

#: Checks a module on a number of devices and inputs; raises where something is wrong.
Check = Callable[[HloModule, int, Sequence[Array]], Comparison]

_HEADER = re.compile(r"^// seed (\d+), (\d+) devices(?:, (\w+))?", re.MULTILINE)


def check_partition(module: HloModule, num_devices: int, inputs: Sequence[Array]) -> Comparison:
    return check_partitioned(module, spmd.partition(module, num_devices), num_devices, inputs)


#: By how far a program is carried.
CHECKS: dict[str, Check] = {
    "partitioned": check_partition,
    "optimized": check_optimized,
    "executed": check_execution,
}


def failure(
    module: HloModule, num_devices: int, seed: int, check: Check = check_partition
) -> str | None:
    """Return what is wrong as ``kind: message``, or None where the program passes."""
    found = examined(module, num_devices, seed, check)
    return found if isinstance(found, str) else None


def examined(module: HloModule, num_devices: int, seed: int, check: Check) -> Comparison | str:
    """Return how near the program comes, or what is wrong as ``kind: message``."""
    try:
        return check(module, num_devices, inputs_of(module, seed))
    except (NotEquivalentError, TilingError, SpmdError) as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - a crash anywhere is a finding too
        return f"crash {type(error).__name__}: {error}"


def shrink(program: Program, found: str, check: Check = check_partition) -> HloModule:
    """The smallest module found that fails in the same way."""
    kind = _kind(found)

    def fails(module: HloModule) -> bool:
        try:
            spmd.verify(module)
            spmd.evaluate(module, *inputs_of(module, program.seed))
        except Exception:  # noqa: BLE001 - an edit that breaks the module is no failure of the partitioner
            return False
        again = failure(module, program.num_devices, program.seed, check)
        return again is not None and _kind(again) == kind

    return minimize(program.module, fails)


def _kind(found: str) -> str:
    """The class of a failure, and of an error its message without what it names; results may differ in any way."""
    if found.startswith("NotEquivalentError: output"):
        return "NotEquivalentError"
    return re.sub(r"[^a-zA-Z: ]+", "", found.partition("\n")[0])[:60]


def write_fixture(
    folder: Path, program: Program, module: HloModule, found: str, through: str = "partitioned"
) -> Path:
    """The header says what ``replay`` needs: seed of the inputs, devices, and how far the program is carried."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed_{program.seed}.hlo"
    lines = [f"// seed {program.seed}, {program.num_devices} devices, {through}"]
    lines += [f"// {line}" for line in found.splitlines()[:4]]
    path.write_text("\n".join(lines) + "\n" + str(module).rstrip() + "\n", encoding="utf-8")
    return path


def replay(path: Path) -> str | None:
    """Run a written fixture again; what is wrong, or None."""
    text = path.read_text(encoding="utf-8")
    header = _HEADER.search(text)
    if header is None:
        raise ValueError(f"{path}: the line `// seed N, M devices` is missing")
    check = CHECKS[header[3] or "partitioned"]
    return failure(spmd.parse(text), int(header[2]), int(header[1]), check)


@dataclass(frozen=True)
class Task:
    """One seed to run; sent to a worker."""

    seed: int
    focus: str
    through: str
    counts: bool


@dataclass(frozen=True)
class Outcome:
    seed: int
    found: str | None
    compared: Comparison = field(default_factory=Comparison)
    cells: frozenset[Cell] = frozenset()
    features: frozenset[str] = frozenset()


def run(task: Task) -> Outcome:
    """Generate, check and, if asked, count one program."""
    program = generate(task.seed, _focus(task.focus, task.seed))
    found = examined(program.module, program.num_devices, task.seed, CHECKS[task.through])
    if isinstance(found, str):
        return Outcome(task.seed, found)
    if not task.counts:
        return Outcome(task.seed, None, found)
    cells = cells_of(program.module, program.num_devices)
    return Outcome(task.seed, None, found, cells, features_of(str(program.module)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.fuzz")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--stop-after", type=int, default=10, help="failures to shrink")
    parser.add_argument("--through", choices=CHECKS, default="partitioned", help="how far")
    parser.add_argument("--focus", default="", help="an operation to write often, or `each`")
    parser.add_argument(
        "--table", type=Path, help="where to write what was tried, as Markdown and JSON"
    )
    parser.add_argument("--least", type=int, default=0, help="fail where a cell has fewer programs")
    parser.add_argument("--replay", type=Path)
    options = parser.parse_args(arguments)
    if options.replay is not None:
        found = replay(options.replay)
        print(found or "passes")
        return 1 if found else 0
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    counts = Counts()
    failed: list[int] = []
    inexact, worst = 0, 0.0
    tasks = [
        Task(seed, options.focus, options.through, options.table is not None)
        for seed in range(options.seed, options.seed + options.count)
    ]
    for outcome in _outcomes(tasks, options.jobs):
        counts.programs += 1
        counts.cells.update(outcome.cells)
        counts.features.update(outcome.features)
        inexact += outcome.compared.inexact > 0
        worst = max(worst, outcome.compared.worst)
        if outcome.found is not None:
            failed.append(outcome.seed)
            _report(outcome.seed, outcome.found, options, shrinks=len(failed) <= options.stop_after)
        if counts.programs % 250 == 0 or counts.programs == options.count:
            seconds = time.perf_counter() - start
            print(
                f"seeds {options.seed} to {outcome.seed}: {counts.programs} programs, {len(failed)} failed, "
                f"{inexact} inexact, error/tolerance at most {worst:.2g}, {seconds:.0f} s, "
                f"{counts.programs / seconds:.1f}/s",
                flush=True,
            )
        counts.failed = len(failed)
        if counts.programs % 1000 == 0:
            _write_table(counts, options)
    if failed:
        print(f"failing seeds: {failed}")
    return 1 if _written(counts, options) or failed else 0


def _outcomes(tasks: Sequence[Task], jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes in the order of the tasks, whatever the number of processes."""
    if jobs == 1:
        yield from map(run, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, tasks, chunksize=25)


def _report(seed: int, found: str, options: argparse.Namespace, *, shrinks: bool) -> None:
    print(f"seed {seed} fails: {found}", flush=True)
    if shrinks:
        program = generate(seed, _focus(options.focus, seed))
        module = shrink(program, found, CHECKS[options.through])
        path = write_fixture(options.out, program, module, found, options.through)
        print(f"  shrunk to {path}", flush=True)


def _written(counts: Counts, options: argparse.Namespace) -> list[Cell]:
    """Writes the table; returns the cells with too few programs, which it names."""
    _write_table(counts, options)
    if options.table is None:
        return []
    low = counts.below(options.least)
    for cell in low:
        print(f"{cell.row}, {cell.kind}, {cell.column}: {counts.cells[cell]} programs")
    return low


def _write_table(counts: Counts, options: argparse.Namespace) -> None:
    if options.table is not None:
        programs = f"--count {options.count} --seed {options.seed}"
        command = f"python -m tests.differential.fuzz {programs} --table {options.table.name}"
        options.table.write_text(counts.as_markdown(command), encoding="utf-8")
        options.table.with_suffix(".json").write_text(counts.as_json(command), encoding="utf-8")


def _focus(wanted: str, seed: int) -> str:
    return OPERATIONS[seed % len(OPERATIONS)].name if wanted == "each" else wanted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
