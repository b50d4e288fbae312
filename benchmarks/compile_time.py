"""Seconds to compile JAX cases beside XLA CPU's: cold, and from the cache of programs, each in a process of its own.

    python -m benchmarks.compile_time CASES [--only REGEX] [--rounds 3] [--peer 'PYTHON time_xla.py --repeat 1']
        [--fusion | --no-fusion] [--json FILE]
    python -m benchmarks.compile_time --layers 140 --ranks 2

Ours is what `spmd bench` calls compile_s: from the module's file (read, parsed, verified) to a program that is
loaded on all devices of this process and ready for a step, kernels' machine code included; importing Python modules
comes before. Cold means that the cache folder is empty; "cached" that the same was compiled there before. The peer
command gets a case folder and prints {"compile_s": ...}: XLA's compilation of a function that was lowered already.
Rounds alternate; shown are the least seconds of each, and the ratios of these. CPU seconds stand beside ours: on a
machine that does other things, too, these alone say what was saved.

With --layers, a GPT training step of so many unrolled layers is compiled by MPI ranks, one device each: all of it,
buffers, thunks and kernels, on a folder without machine code.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpt_step import GptSizes, gpt_step
from benchmarks.timing.program import run_json
from benchmarks.timing.turns import geometric_mean
from launch.cache.cache_folder import VARIABLE, keep_objects
from launch.cache.compile_cached import compile_source
from launch.imported_before import import_before_timing
from launch.options import CompileOptions
from launch.report.environment import describe_environment
from launch.source import source_of
from runtime.interpreter import settings_for_compiling

MOST_SECONDS, MOST_INSTRUCTIONS = 60.0, 50_000
HEADER = (
    f"{'case':28s} {'cold s':>8s} {'CPU':>7s} {'cached s':>9s} {'CPU':>7s} {'XLA s':>8s} "
    f"{'cold':>6s} {'cached':>6s}"
)


def compile_here(module: str, devices: int, options: CompileOptions) -> dict[str, Any]:
    """Seconds, CPU seconds of all threads, and whether the program came from the cache."""
    keep_objects()
    import_before_timing()
    cpu, start = time.process_time(), time.perf_counter()
    compiled = compile_source(source_of(module), devices, options, stored_later=True)
    with settings_for_compiling():
        compiled.executable.load_devices()
    seconds = time.perf_counter() - start
    return {
        "compile_s": seconds,
        "cpu_s": time.process_time() - cpu,
        "cached": compiled.cached,
    }


def measure(case: Path, options: argparse.Namespace) -> dict[str, Any]:
    devices = json.loads((case / "case.json").read_text())["num_partitions"]
    fusion = "--fusion" if options.fusion else "--no-fusion"
    ours = [sys.executable, "-m", "benchmarks.compile_time", fusion]
    ours += ["--one", str(case / "module.hlo"), "--devices", str(devices)]
    found: dict[str, list[dict[str, Any]]] = {"cold": [], "cached": [], "xla": []}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            objects = {VARIABLE: str(Path(folder) / "objects")}
            found["cold"].append(run_json(ours, objects))
            found["cached"].append(run_json(ours, objects))
        if found["cold"][-1]["cached"] or not found["cached"][-1]["cached"]:
            raise RuntimeError("the cache was not used as it should be")
        if options.peer:
            found["xla"].append(run_json([*shlex.split(options.peer), str(case)]))
    least = {
        kind: min((one["compile_s"] for one in rows), default=math.nan)
        for kind, rows in found.items()
    }
    return {
        "case": case.name,
        "devices": devices,
        "cold_s": least["cold"],
        "cold_cpu_s": min(one["cpu_s"] for one in found["cold"]),
        "cached_s": least["cached"],
        "cached_cpu_s": min(one["cpu_s"] for one in found["cached"]),
        "xla_s": least["xla"],
        "cold_ratio": least["cold"] / least["xla"],
        "cached_ratio": least["cached"] / least["xla"],
    }


def line_of(row: dict[str, Any]) -> str:
    return (
        f"{row['case']:28s} {row['cold_s']:8.3f} {row['cold_cpu_s']:7.3f} {row['cached_s']:9.3f} "
        f"{row['cached_cpu_s']:7.3f} {row['xla_s']:8.3f} {row['cold_ratio']:6.2f} {row['cached_ratio']:6.2f}"
    )


def compare(options: argparse.Namespace) -> int:
    print(json.dumps(describe_environment()))
    print(HEADER)
    rows, failed = [], 0
    for file in sorted(options.cases.glob("*/case.json")):
        case = file.parent
        if not re.search(options.only, case.name):
            continue
        try:
            rows.append(measure(case, options))
            print(line_of(rows[-1]), flush=True)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{case.name:28s} {error}")
            failed += 1
    report: dict[str, Any] = {"environment": describe_environment(), "rows": rows}
    if rows and options.peer:
        for kind in ("cold", "cached"):
            mean = geometric_mean(row[f"{kind}_ratio"] for row in rows)
            report[f"{kind}_geometric_mean"] = mean
            print(f"{kind}: geometric mean of ours over XLA's {mean:.3f} over {len(rows)} cases")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if failed or not rows else 0


def compile_on_ranks(layers: int, ranks: int) -> int:
    """1 where a program of fewer than 50,000 instructions takes more than 60 s."""
    sizes = GptSizes(
        (ranks, 1, 1),
        layers,
        batch=2 * ranks,
        sequence=8,
        heads=2,
        head=8,
        hidden=32,
        vocabulary=64,
    )
    module = gpt_step(sizes)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path, objects = Path(folder) / "module.hlo", {VARIABLE: str(Path(folder) / "objects")}
        path.write_text(str(module), encoding="utf-8")
        launcher = [sys.executable, "-m", "launch", "launch", "-n", str(ranks), "--"]
        bench = [*launcher, "bench", str(path), "--repeat", "1", "--json"]
        print(
            f"gpt of {layers} layers, {module.instruction_count:,} instructions, on {ranks} ranks"
        )
        for kind in ("cold", "cached"):
            before = cpu_of_children()
            found = run_json(bench, objects)
            print(
                f"{kind}: {found['compile_s']:.1f} s to compile and load; all processes from start to end, a few "
                f"steps of {found['step_ms']['median']:.1f} ms included: {cpu_of_children() - before:.1f} s of CPU",
                flush=True,
            )
            seconds[kind] = found["compile_s"]
    small = module.instruction_count < MOST_INSTRUCTIONS
    return 1 if small and seconds["cold"] > MOST_SECONDS else 0


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path, nargs="?", default=Path("../shared/corpus"))
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", default="", help="command that times XLA on a case folder")
    parser.add_argument(
        "--fusion", action=argparse.BooleanOptionalAction, default=CompileOptions().fusion
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--layers", type=int, help="compile a GPT step of this depth on ranks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--devices", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(
            json.dumps(
                compile_here(options.one, options.devices, CompileOptions(fusion=options.fusion))
            )
        )
        return 0
    if options.layers is not None:
        return compile_on_ranks(options.layers, options.ranks)
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
