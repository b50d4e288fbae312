"""Programs that were not written for this project, beside JAX: numbers, times, bytes sent and memory.

    python -m benchmarks.zoo [--only RE] [--devices 1,4,8] [--ranks] [--json F] [--work FOLDER] [--jax PYTHON]
    python -m benchmarks.zoo --random 1000 --seed 0 [--ranks]

Each program is built, lowered and run by JAX in a process of its own, or with --group N in one of N programs (--jax: a
Python that has the `zoo` extra; this one by default). Then it is compiled and run here on devices of one process, and
with --ranks also on MPI ranks, which must give the same bits. An output agrees if it differs from JAX's by no more than
a tolerance made from its type and from what JAX's own runs differ by: sharded, unsharded, and on inputs moved in their
last bits (docs/zoo.md).

Random programs are run by the thousand (generated/run.py), each on as many devices as its own number decides, with a
line for each that does not pass, whose folder stays, and a tally of the others.

The exit code is 1 if a program does not agree.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.timing.turns import geometric_mean
from benchmarks.zoo.generated.run import Runner
from benchmarks.zoo.generated.seeds import devices_of, name_of
from benchmarks.zoo.page import write_page
from benchmarks.zoo.registry import names
from benchmarks.zoo.results import HEADER, Row, line_of, row_of

#: Seconds that JAX may take for a program, and this project for one number of devices.
JAX_PATIENCE, PATIENCE = 600, 300


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path.cwd()), "SPMD_PROGRAM_CACHE": "off"}


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no output"


def build(names: list[str], options: argparse.Namespace) -> None:
    """Have JAX write the cases of some programs; a process that dies is the fault of the first program it left."""
    counts = options.devices.split(",")

    def is_left(name: str) -> bool:
        root = options.work / name
        written = all((root / count / "case.json").exists() for count in counts)
        return not written and not (root / "error.txt").exists()

    while left := [name for name in names if is_left(name)]:
        command = [options.jax, "-m", "benchmarks.zoo.build", *left]
        command += ["--devices", options.devices, "--folder", str(options.work)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=JAX_PATIENCE * len(left),
                env=environment(),
            )
            said = f"process ended with {done.returncode}: {last_line(done.stderr)}"
        except subprocess.TimeoutExpired:
            said = "no end"
        if is_left(left[0]):
            (options.work / left[0]).mkdir(parents=True, exist_ok=True)
            (options.work / left[0] / "error.txt").write_text(said)


def run_here(folders: list[Path], options: argparse.Namespace) -> None:
    """Run cases here; a process that dies or does not end is the fault of the first case that it left."""
    left = [folder for folder in folders if not (folder / "ours.json").exists()]
    while left:
        command = [sys.executable, "-m", "benchmarks.zoo.ours", *map(str, left)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=PATIENCE * len(left),
                env=environment(),
            )
            said = f"process ended with {done.returncode}: {last_line(done.stderr)}"
        except subprocess.TimeoutExpired:
            said = f"no end within {PATIENCE * len(left)} s"
        left = [folder for folder in left if not (folder / "ours.json").exists()]
        if left:
            (left[0] / "ours.json").write_text(json.dumps({"crashed": said}))
            left = left[1:]


def on_ranks(folder: Path, devices: int, options: argparse.Namespace) -> str:
    """Run a case under mpirun and compare its bits with those of the run in one process."""
    command = [sys.executable, "-m", "launch", "launch", "-n", str(devices), "--", "run"]
    command += [str(folder / "module.hlo"), "--inputs", str(folder / "inputs.npz")]
    command += ["--outputs", str(folder / "ranks.npz")]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, env=environment()
        )
    except subprocess.TimeoutExpired:
        return f"no end within {PATIENCE} s"
    if done.returncode:
        return f"exit code {done.returncode}: {last_line(done.stderr)}"
    with np.load(folder / "ranks.npz") as ranks, np.load(folder / "outputs.npz") as alone:
        other = [name for name in alone.files if ranks[name].tobytes() != alone[name].tobytes()]
    return f"other bits in {', '.join(other[:4])}" if other else "same bits"


def rows_of(group: list[str], counts: list[int], options: argparse.Namespace) -> list[Row]:
    """Build programs, run them here, and compare."""
    for name in group:
        if not options.keep:
            shutil.rmtree(options.work / name, ignore_errors=True)
        (options.work / name / "error.txt").unlink(missing_ok=True)
    build(group, options)
    folders = {(n, c): options.work / n / str(c) for n in group for c in counts}
    written = {key: path for key, path in folders.items() if (path / "case.json").exists()}
    for path in written.values():
        (path / "ours.json").unlink(missing_ok=True)
    run_here(list(written.values()), options)
    rows = []
    for (name, count), path in folders.items():
        if path not in written.values():
            rows.append(Row(name, count, f"JAX: {last_line(error_of(options.work / name))}", {}))
            continue
        row = row_of(path, name, count)
        if options.ranks and row.verdict.startswith(("agrees", "differs")):
            row = dataclasses.replace(row, ranks=on_ranks(path, count, options))
        rows.append(row)
    return rows


def error_of(folder: Path) -> str:
    path = folder / "error.txt"
    return path.read_text() if path.exists() else "no case was written"


def summary(rows: list[Row]) -> list[str]:
    ran = [row for row in rows if "step_ms" in row.figures]
    lines = [f"{sum(row.passed for row in rows)} of {len(rows)} pass"]
    for key in ("compile_s", "step_ms", "memory"):
        pairs = [(row.figures[key], row.figures.get(f"xla_{key}")) for row in ran]
        ratios = [mine / peer for mine, peer in pairs if mine and peer]
        if ratios:
            mean = geometric_mean(ratios)
            lines.append(
                f"{key}: {mean:.2f} of XLA CPU's (geometric mean), {max(ratios):.2f} at most"
            )
    return lines


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
    parser.add_argument("--random", type=int, metavar="N", help="N random programs instead")
    parser.add_argument("--seed", type=int, default=0, help="number of the first random program")
    parser.add_argument("--group", type=int, default=1, help="programs for each process of JAX")
    return parser.parse_args()


def run_random(options: argparse.Namespace) -> int:
    """Run random programs, with a line for each that does not pass and for each hundred."""

    def confirm(seed: int) -> str:
        single = argparse.Namespace(**{**vars(options), "ranks": False, "keep": False})
        single.devices = str(devices_of(seed))
        (row,) = rows_of([name_of(seed)], [devices_of(seed)], single)
        return row.verdict

    runner = Runner(options.work, options.jax, options.ranks, confirm)
    seeds = range(options.seed, options.seed + options.random)
    for number, found in enumerate(runner.run(seeds), 1):
        if not found.passed:
            print(found, flush=True)
        if number % 100 == 0 or number == options.random:
            print(f"{number} run: {dict(runner.tally)}", flush=True)
    return 0 if set(runner.tally) == {"agrees"} else 1


def main() -> int:
    options = parsed()
    with tempfile.TemporaryDirectory() as temporary:
        options.work = (options.work or Path(temporary)).absolute()
        return run_random(options) if options.random is not None else run_zoo(options)


def run_zoo(options: argparse.Namespace) -> int:
    counts = [int(n) for n in options.devices.split(",")]
    print(HEADER)
    rows: list[Row] = []
    programs = [name for name in names() if re.search(options.only, name)]
    for start in range(0, len(programs), options.group):
        for row in rows_of(programs[start : start + options.group], counts, options):
            rows.append(row)
            print(line_of(row), flush=True)
        if options.json:
            report = [row.as_json() for row in rows]
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(summary(rows)))
    if options.page:
        write_page(options.page, rows)
    return 0 if rows and all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
