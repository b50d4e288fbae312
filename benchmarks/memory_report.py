"""Memory of one device beside XLA CPU's, kernels' own temporaries included.

    python benchmarks/memory_report.py CORPUS [--only REGEX] [--most 1.1]

For every case: the temporary allocation that buffer assignment planned; the most bytes of arrays that kernels made
outside it at one time (library functions make arrays of their own; counted by NumPy's allocator while rank 0 of an
MPI job runs a step); and XLA's temporary bytes for the same module (case.json). Exit code 1 where the geometric mean of
the sums is above --most.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

from numpy_memory import CountedArrays

import spmd
from launch.inputs import SeededInputs
from launch.mpirun import MpiJob
from launch.rank_environment import world_of_environment

RANK_OPTION = "--as-rank"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--most", type=float, default=1.1, help="bound of the geometric mean")
    parser.add_argument(RANK_OPTION, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        measure(options.corpus)
        return 0
    cases = [path.parent for path in sorted(options.corpus.glob("*/case.json"))]
    print(f"{'case':<28}{'temp':>12}{'+ kernels':>12}{'XLA':>12}{'temp/XLA':>10}{'sum/XLA':>9}")
    planned, whole = [], []
    for case in cases:
        if not re.search(options.only, case.name):
            continue
        description = json.loads((case / "case.json").read_text())
        temp, outside = measured(case, description["num_partitions"])
        peer = description["peer"]["memory"]["temp_size_in_bytes"]
        ratios = ("", "")
        if peer:
            planned.append(max(temp, 1) / peer)
            whole.append(max(temp + outside, 1) / peer)
            ratios = (f"{planned[-1]:.2f}", f"{whole[-1]:.2f}")
        print(
            f"{case.name:<28}{temp:>12,}{outside:>12,}{peer:>12,}{ratios[0]:>10}{ratios[1]:>9}",
            flush=True,
        )
    print(
        f"geometric mean over {len(whole)} cases: planned {mean(planned):.3f}, "
        f"with what kernels allocate {mean(whole):.3f} of XLA's (at most {options.most:g} wanted)"
    )
    return int(mean(whole) > options.most)


def measured(case: Path, devices: int) -> tuple[int, int]:
    """Bytes planned, and most bytes outside at one time, on rank 0."""
    job = MpiJob(devices, (sys.executable, __file__, str(case), RANK_OPTION))
    done = subprocess.run(
        job.arguments(),
        env=job.environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{case.name}: {done.stderr}")
    figures = json.loads(done.stdout)
    return figures["temp"], figures["outside"]


def measure(case: Path) -> None:
    """As a rank: the second step's allocations; the first makes what lasts."""
    rank, size = world_of_environment() or (0, 1)
    executable = spmd.compile(spmd.load(case / "module.hlo"), devices=size)
    inputs = SeededInputs(0, [one.shape for one in executable.inputs])
    executable.run(executable.put(inputs))
    state = executable.put(inputs)
    with CountedArrays() as arrays:
        executable.run(state)
    if rank == 0:
        print(json.dumps({"temp": executable.stats.temp, "outside": arrays.peak}))


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


if __name__ == "__main__":
    sys.exit(main())
