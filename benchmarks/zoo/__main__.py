"""Programs that were not written for this project, beside JAX: numbers, times, bytes sent and memory.

    python -m benchmarks.zoo [--only RE] [--devices 1,4,8] [--ranks] [--json F] [--work FOLDER] [--jax PYTHON]
    python -m benchmarks.zoo --jax PYTHON --group 8 --ranks --work FOLDER --keep --page docs/zoo.md
    python -m benchmarks.zoo --random 1000 --seed 0 [--ranks]

Each program is built, lowered and run by JAX in a process of its own, or with --group N in one of N programs (--jax: a
Python that has the `zoo` extra; this one by default). Then it is compiled and run here on devices of one process, and
with --ranks also on MPI ranks, which must give the same bits. Outputs are judged beside those of JAX's own runs: they
agree, differ by rounding that the program amplifies, at a named op, or differ (docs/zoo.md).

Random programs are run by the thousand (generated/run.py), each on as many devices as its own number decides, with a
line for each that does not pass, whose folder stays, and a tally of the others.

The exit code is 1 if a program does not agree.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.zoo.generated.run import Runner
from benchmarks.zoo.jobs import build, calls_python, last_line, run_here, run_on_ranks
from benchmarks.zoo.page import write_page
from benchmarks.zoo.registry import TENSORFLOW, TORCH, names
from benchmarks.zoo.results import HEADER, Row, line_of, row_of, summary


def rows_of(group: list[str], counts: list[int], options: argparse.Namespace) -> list[Row]:
    """Build programs, run them here and perhaps on ranks, and judge their outputs."""
    for name in group:
        if not options.keep:
            shutil.rmtree(options.work / name, ignore_errors=True)
        (options.work / name / "error.json").unlink(missing_ok=True)
    build(builder(group, options), group, counts, options.work)
    folders = {(n, c): options.work / n / str(c) for n in group for c in counts}
    cases = {key: path for key, path in folders.items() if (path / "case.json").exists()}
    for path in cases.values():
        for old in ("ours.json", "ranks.json"):
            (path / old).unlink(missing_ok=True)
    run_here(list(cases.values()), options.jax)
    for count in counts if options.ranks else ():
        mine = [p for (_, c), p in cases.items() if c == count and not calls_python(p)]
        run_on_ranks([path for path in mine if (path / "outputs.npz").exists()], count)
    return [
        row_of(cases[key], *key)
        if key in cases
        else Row(*key, "JAX", last_line(error_of(options.work / key[0])), {})
        for key in folders
    ]


def builder(group: list[str], options: argparse.Namespace) -> list[str]:
    if group[0] in TENSORFLOW:
        return [options.tensorflow, "-m", "benchmarks.zoo.build_tensorflow"]
    if group[0] in TORCH:
        return [options.torch, "-m", "benchmarks.zoo.build_torch"]
    return [options.jax, "-m", "benchmarks.zoo.build"]


def error_of(folder: Path) -> str:
    path = folder / "error.json"
    return str(json.loads(path.read_text())["crashed"]) if path.exists() else "no case was written"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="programs whose name matches this expression")
    parser.add_argument("--devices", default="1,4,8")
    parser.add_argument("--ranks", action="store_true", help="run on MPI ranks as well")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument(
        "--page", type=Path, help="write the table of this page again (docs/zoo.md)"
    )
    parser.add_argument("--work", type=Path, help="folder of cases (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="use what JAX wrote there before")
    parser.add_argument("--jax", default=sys.executable, help="Python that has the zoo extra")
    parser.add_argument("--tensorflow", help="Python that has TensorFlow: its programs run, too")
    parser.add_argument("--torch", help="Python that has PyTorch/XLA: its programs run, too")
    parser.add_argument("--random", type=int, metavar="N", help="N random programs instead")
    parser.add_argument("--seed", type=int, default=0, help="number of the first random program")
    parser.add_argument("--group", type=int, default=1, help="programs for each process of JAX")
    return parser.parse_args()


def run_random(options: argparse.Namespace) -> int:
    """Run random programs, with a line for each that does not pass and for each hundred."""
    runner = Runner(options.work, options.jax, options.ranks)
    seeds = range(options.seed, options.seed + options.random)
    for number, found in enumerate(runner.run(seeds), 1):
        if not found.passed:
            print(found, flush=True)
        if number % 100 == 0 or number == options.random:
            print(f"{number} run: {dict(runner.tally)}", flush=True)
    return 0 if runner.all_passed else 1


def groups_of(options: argparse.Namespace) -> Iterator[tuple[list[str], list[int]]]:
    """Programs that go through one process, with their numbers of devices."""
    counts = [int(n) for n in options.devices.split(",")]
    chosen = [name for name in names() if re.search(options.only, name)]
    for start in range(0, len(chosen), options.group):
        yield chosen[start : start + options.group], counts
    of_tensorflow = [name for name in TENSORFLOW if re.search(options.only, name)]
    if options.tensorflow and of_tensorflow:
        yield of_tensorflow, [1]
    of_torch = [name for name in TORCH if re.search(options.only, name)]
    if options.torch and of_torch:
        yield from ((of_torch, [count]) for count in counts)  # a process has devices once for all


def run_zoo(options: argparse.Namespace) -> int:
    print(HEADER)
    rows: list[Row] = []
    for group, counts in groups_of(options):
        for row in rows_of(group, counts, options):
            rows.append(row)
            print(line_of(row), flush=True)
        if options.json:
            report = [row.as_json() for row in rows]
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(summary(rows)))
    if options.page:
        write_page(options.page, rows)
    return 0 if rows and all(row.passed for row in rows) else 1


def main() -> int:
    options = parsed()
    with tempfile.TemporaryDirectory() as temporary:
        options.work = (options.work or Path(temporary)).absolute()
        return run_random(options) if options.random is not None else run_zoo(options)


if __name__ == "__main__":
    sys.exit(main())
