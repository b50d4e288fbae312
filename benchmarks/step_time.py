"""Step time on JAX cases beside XLA CPU's, alternating in one run, with the machine's limit for the same kernels.

    python -m benchmarks.step_time CASES [--only REGEX] [--rounds 3] [--mpirun] [--no-fusion] [--results FOLDER]
        [--peer 'PYTHON time_xla.py'] [--one-device 'PYTHON -m benchmarks.xla_one_device']

The peer command gets a case folder and prints {"step_ms": {"median": ...}} (XLA CPU on as many host devices as the
case has, in one process); the one-device command gets module.hlo and prints the same of XLA CPU on one device with all
cores, where the module can run so. Without them only our times are shown. Our devices run in one process, or with
--mpirun in one process each; --no-fusion is `spmd bench`'s. The limit is that of benchmarks/timing/limit.py for our
scheduled program at rates measured in this run: "limit" with operands that have just been touched, and "lying" with
operands as far away as they are in the step (benchmarks/timing/reuse.py). The folder of --results gets step_time.json,
or step_time_mpirun.json, and a picture of it where matplotlib is installed and there is a peer. The last column is the
time that `spmd bench` predicted over the measured one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import spmd
from benchmarks.timing.limit import Limit, step_limit
from benchmarks.timing.program import run_json
from benchmarks.timing.rates import Rates
from benchmarks.timing.reuse import byte_seconds
from benchmarks.timing.turns import geometric_mean
from launch.options import CompileOptions
from launch.pipeline import stages
from launch.report.environment import describe_environment
from runtime.compile import build_executable

HEADER = (
    f"{'case':28s} {'devices':>7s} {'ours ms':>9s} {'XLA ms':>9s} {'ratio':>6s} {'limit ms':>9s} "
    f"{'of limit':>8s} {'lying ms':>9s} {'of it':>6s} {'XLA, one device':>16s} {'predicted/':>10s}"
)
#: Bounds of the ratio's mean, of each ratio, and of each time over the limit.
MEAN, EACH, OF_LIMIT = 0.65, 1.0, 1.5
#: How far a predicted time may be from the measured one, as a share of it.
PREDICTED = 0.2


def limits_of(path: str, devices: int, rates: Rates, *, fusion: bool) -> tuple[Limit, Limit]:
    """Return the limit with operands that have just been touched, and that with operands where a step has them."""
    *_, (_, compilation) = stages(spmd.load(path), devices, CompileOptions(fusion=fusion))
    executable = build_executable(compilation.module, check=False)
    module = executable.module
    lying = byte_seconds(executable.program, module, rates)
    return step_limit(module, rates), step_limit(module, rates, lying)


def measure(case: Path, options: argparse.Namespace, rates: Rates) -> dict[str, Any]:
    devices = json.loads((case / "case.json").read_text())["num_partitions"]
    path = str(case / "module.hlo")
    if options.mpirun:
        launcher = [sys.executable, "-m", "launch.mpirun", "-n", str(devices), "--", "-m"]
        ours = [*launcher, "launch", "bench", path, "--json"]
    else:
        ours = [sys.executable, "-m", "launch", "bench", path, "--json", "--devices", str(devices)]
    ours.append("--fusion" if options.fusion else "--no-fusion")
    peer = [*shlex.split(options.peer), str(case)] if options.peer else None
    pairs, alone = [], []
    for _ in range(options.rounds):
        found = run_json(ours)
        mine = found["step_ms"]["median"]
        pairs.append((mine, run_json(peer)["step_ms"]["median"] if peer else math.nan))
        alone.append(one_device_ms(options, path))
    limit, lying = limits_of(path, devices, rates, fusion=options.fusion)
    return {
        "case": case.name,
        "devices": devices,
        "step_ms": statistics.median(a for a, _ in pairs),
        "xla_ms": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
        "predicted_ms": found["predicted_ms"],
        "xla_one_device_ms": statistics.median(alone),
        "limit_ms": 1e3 * limit.seconds,
        "limit_lying_ms": 1e3 * lying.seconds,
        "limit_parts_ms": {
            "compute": 1e3 * limit.compute,
            "memory": 1e3 * limit.memory,
            "wire": 1e3 * limit.wire,
        },
    }


def one_device_ms(options: argparse.Namespace, path: str) -> float:
    """Return the milliseconds of a step of XLA CPU on one device; nan where XLA cannot run the module so."""
    if not options.one_device:
        return math.nan
    try:
        found = run_json([*shlex.split(options.one_device), path])
    except RuntimeError:
        return math.nan
    return float(found["step_ms"]["median"])


def line_of(row: dict[str, Any]) -> str:
    over, lying = (
        row["step_ms"] / row[limit] if row[limit] else math.inf
        for limit in ("limit_ms", "limit_lying_ms")
    )
    return (
        f"{row['case']:28s} {row['devices']:7d} {row['step_ms']:9.2f} {row['xla_ms']:9.2f} "
        f"{row['ratio']:6.2f} {row['limit_ms']:9.3f} {over:8.1f} "
        f"{row['limit_lying_ms']:9.3f} {lying:6.1f} "
        f"{row['xla_one_device_ms']:16.2f} {row['predicted_ms'] / row['step_ms']:10.2f}"
    )


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return lines that say how far the wanted figures are met."""
    lines = []
    ratios = {row["case"]: row["ratio"] for row in rows if not math.isnan(row["ratio"])}
    if ratios:
        above = [f"{case} {ratio:.2f}" for case, ratio in ratios.items() if ratio > EACH]
        mean = geometric_mean(ratios.values())
        lines.append(
            f"geometric mean of the ratio: {mean:.2f} (at most {MEAN} wanted); above {EACH:.1f}: "
            f"{', '.join(above) or 'none'}"
        )
    for which, limit in (("limit", "limit_ms"), ("limit as lying", "limit_lying_ms")):
        far = [row["case"] for row in rows if row["step_ms"] > OF_LIMIT * row[limit]]
        lines.append(f"above {OF_LIMIT} of the {which}: {len(far)} of {len(rows)}")
    off = [r["case"] for r in rows if abs(r["predicted_ms"] / r["step_ms"] - 1) > PREDICTED]
    return [*lines, f"predicted more than {PREDICTED:.0%} off: {len(off)} of {len(rows)}"]


def write_results(report: dict[str, Any], folder: Path) -> None:
    name = "step_time_mpirun" if report["engine"] == "mpirun" else "step_time"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    compared = any(not math.isnan(row["ratio"]) for row in report["rows"])
    if compared and importlib.util.find_spec("matplotlib"):
        from benchmarks.timing.plot import draw

        draw(report, folder / f"{name}.png")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpirun", action="store_true", help="ours on MPI ranks")
    parser.add_argument("--peer", default="", help="command that times XLA on a case folder")
    parser.add_argument("--one-device", default="", help="command that times XLA on a module")
    parser.add_argument(
        "--fusion", action=argparse.BooleanOptionalAction, default=CompileOptions().fusion
    )
    parser.add_argument("--results", type=Path, help="write figures and picture to this folder")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    environment = describe_environment()
    rates = Rates.measured()
    print(json.dumps(environment))
    print(
        "copies on every core at once, GB/s a core: "
        + ", ".join(f"{rate / 1e9:.0f} of {size >> 10} KiB" for size, rate in rates.copies)
    )
    print(HEADER)
    rows, failed = [], 0
    for folder in sorted(options.cases.glob("*/case.json")):
        if not re.search(options.only, folder.parent.name):
            continue
        try:
            rows.append(measure(folder.parent, options, rates))
            print(line_of(rows[-1]), flush=True)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{folder.parent.name:28s} {error}")
            failed += 1
    report = {
        "environment": environment,
        "engine": "mpirun" if options.mpirun else "one process",
        "fusion": options.fusion,
        "copies": rates.copies,
        "exchanges": rates.exchanges,
        "rows": rows,
    }
    for line in summary(rows):
        print(line)
    if options.results and rows:
        write_results(report, options.results)
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
