"""Step time on JAX cases beside XLA CPU's, alternating in one run, with the machine's limit for the same kernels.

    python -m benchmarks.step_time CASES [--only REGEX] [--rounds 3] [--mpirun] [--peer 'PYTHON time_xla.py']
        [--json FILE] [--plot FILE.png]

The peer command gets a case folder and prints {"step_ms": {"median": ...}} (XLA CPU on as many host devices as the
case has, in one process). Without it our times stand alone. Ours run in one process, or with --mpirun one per device.
The limit is what benchmarks/timing/limit.py says of our scheduled program at rates measured here, now.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import spmd
from benchmarks.timing.limit import step_limit
from benchmarks.timing.rates import Rates
from benchmarks.timing.turns import geometric_mean
from launch.options import CompileOptions
from launch.pipeline import stages
from launch.report.environment import describe_environment
from spmd.hlo import HloModule

#: Set on some machines by hand; they make OpenBLAS choose slow kernels.
MISLEADING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
#: Seconds that a timed program may take.
PATIENCE = 900
HEADER = f"{'case':28s} {'devices':>7s} {'ours ms':>9s} {'XLA ms':>9s} {'ratio':>6s} {'limit ms':>9s} {'of limit':>8s}"


def run_json(command: list[str]) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k not in MISLEADING}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1][:150])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def scheduled(module: HloModule, devices: int) -> HloModule:
    *_, (_, compilation) = stages(module, devices, CompileOptions())
    return compilation.module


def measure(case: Path, options: argparse.Namespace, rates: Rates) -> dict[str, Any]:
    devices = json.loads((case / "case.json").read_text())["num_partitions"]
    path = str(case / "module.hlo")
    if options.mpirun:
        launcher = [sys.executable, "-m", "launch.mpirun", "-n", str(devices), "--", "-m"]
        ours = [*launcher, "launch", "bench", path, "--json"]
    else:
        ours = [sys.executable, "-m", "launch", "bench", path, "--json", "--devices", str(devices)]
    peer = [*shlex.split(options.peer), str(case)] if options.peer else None
    pairs = []
    for _ in range(options.rounds):
        mine = run_json(ours)["step_ms"]["median"]
        pairs.append((mine, run_json(peer)["step_ms"]["median"] if peer else math.nan))
    limit = step_limit(scheduled(spmd.load(path), devices), rates)
    return {
        "case": case.name,
        "devices": devices,
        "step_ms": statistics.median(a for a, _ in pairs),
        "xla_ms": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
        "limit_ms": 1e3 * limit.seconds,
        "limit_parts_ms": {
            "compute": 1e3 * limit.compute,
            "memory": 1e3 * limit.memory,
            "wire": 1e3 * limit.wire,
        },
    }


def line_of(row: dict[str, Any]) -> str:
    over = row["step_ms"] / row["limit_ms"] if row["limit_ms"] else math.inf
    return (
        f"{row['case']:28s} {row['devices']:7d} {row['step_ms']:9.2f} {row['xla_ms']:9.2f} "
        f"{row['ratio']:6.2f} {row['limit_ms']:9.3f} {over:8.1f}"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpirun", action="store_true", help="ours on MPI ranks")
    parser.add_argument("--peer", default="", help="command that times XLA on a case folder")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw them (PNG; needs matplotlib and --peer)")
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
        "copies": rates.copies,
        "rows": rows,
    }
    ratios = [row["ratio"] for row in rows if not math.isnan(row["ratio"])]
    if ratios:
        print(f"geometric mean of the ratio: {geometric_mean(ratios):.2f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.plot:
        from benchmarks.timing.plot import draw

        draw(report, options.plot)
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
