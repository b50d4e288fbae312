"""Step time on JAX cases beside XLA CPU's, alternating in one run, with the machine's limit for the same work.

    python benchmarks/step_time.py CASES [--only REGEX] [--rounds 3] [--mpirun] [--peer 'PYTHON
    time_xla.py'] [--json FILE]

The peer command gets a case folder and prints {"step_ms": {"median": ...}} (XLA CPU on as many host
devices as the case has,
in one process). Without it our times stand alone. The limit is what the devices' flops and bytes
take together at the rates
measured here, now: one f32 matrix product and one copy on all cores.
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
import time
from pathlib import Path
from typing import Any

import numpy as np

from launch.report.environment import describe_environment

#: Set on some machines by hand; they make OpenBLAS choose slow kernels.
MISLEADING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def run_json(command: list[str]) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k not in MISLEADING}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1][:150])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def machine_rates() -> tuple[float, float]:
    """(flops per second, bytes per second) of all cores: best of five."""
    a = np.ones((2048, 2048), np.float32)
    out = np.empty_like(a)
    source = np.ones(1 << 26, np.uint8)
    target = np.empty_like(source)
    np.copyto(target, source)
    products = [seconds(lambda: np.matmul(a, a, out=out)) for _ in range(5)]
    copies = [seconds(lambda: np.copyto(target, source)) for _ in range(5)]
    return 2 * 2048**3 / min(products), 2 * source.size / min(copies)


def seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(case: Path, options: argparse.Namespace, rates: tuple[float, float]) -> dict[str, Any]:
    devices = json.loads((case / "case.json").read_text())["num_partitions"]
    module = str(case / "module.hlo")
    launcher = [sys.executable, "-m", "launch"]
    ours = [*launcher, "bench", module, "--json"]
    if options.mpirun:
        ours = [sys.executable, "-m", "launch.mpirun", "-n", str(devices), "--", "-m", *ours[2:]]
    else:
        ours += ["--devices", str(devices)]
    peer = [*shlex.split(options.peer), str(case)] if options.peer else None
    pairs = []
    for _ in range(options.rounds):
        mine = run_json(ours)["step_ms"]["median"]
        pairs.append((mine, run_json(peer)["step_ms"]["median"] if peer else math.nan))
    work = run_json([*launcher, "stats", module, "--devices", str(devices), "--json"])
    limit = 1e3 * devices * max(work["flops"] / rates[0], work["bytes_accessed"] / rates[1])
    return {
        "case": case.name,
        "devices": devices,
        "step_ms": statistics.median(a for a, _ in pairs),
        "xla_ms": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
        "limit_ms": limit,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpirun", action="store_true", help="ours on MPI ranks")
    parser.add_argument("--peer", default="", help="command that times XLA on a case folder")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    environment = describe_environment()
    rates = machine_rates()
    print(json.dumps(environment))
    print(
        f"{rates[0] / 1e9:.0f} GFLOP/s in a 2048 cube, {rates[1] / 1e9:.1f} GB/s in a copy, all cores"
    )
    print(
        f"{'case':28s} {'devices':>7s} {'ours ms':>9s} {'XLA ms':>9s} {'ratio':>6s} {'limit ms':>9s}"
    )
    rows, failed = [], 0
    for folder in sorted(options.cases.glob("*/case.json")):
        case = folder.parent
        if not re.search(options.only, case.name):
            continue
        try:
            row = measure(case, options, rates)
        except RuntimeError as error:
            print(f"{case.name:28s} {error}")
            failed += 1
            continue
        rows.append(row)
        print(
            f"{row['case']:28s} {row['devices']:7d} {row['step_ms']:9.2f} {row['xla_ms']:9.2f} "
            f"{row['ratio']:6.2f} {row['limit_ms']:9.2f}",
            flush=True,
        )
    ratios = [row["ratio"] for row in rows if not math.isnan(row["ratio"])]
    if ratios:
        print(
            f"geometric mean of the ratio: {math.exp(statistics.fmean(map(math.log, ratios))):.2f}"
        )
    if options.json:
        figures = {
            "environment": environment,
            "gflops": rates[0] / 1e9,
            "copy_gb_s": rates[1] / 1e9,
        }
        options.json.write_text(json.dumps({**figures, "rows": rows}, indent=1) + "\n")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
