"""Report the communication that the latency-hiding scheduler hides on described machines, and what a limit costs.

python -m benchmarks.overlap.hidden_communication MODULE... [--machine dgx-h100] [--machine "dgx-h100{links=0.25}"]
    [--memory-limit BYTES] [--fusion]

Each module is optimized and ordered for memory as any other, its collectives are made asynchronous, and the scheduler
orders it for each machine; seconds are those of its own timeline (docs/internals/scheduling.md), CPU seconds its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from collectives.cost.roofline import RooflineEstimator
from collectives.passes.async_creation import AsyncCreation
from collectives.schedule.latency_hiding import LatencyOptions, schedule_for_latency
from collectives.schedule.latency_report import LatencyReport
from launch.options import CompileOptions
from launch.pipeline import stages
from spmd.hlo import HloModule
from spmd.hlo.clone import clone_module
from spmd.machine.named import machine_named
from spmd.text.sources.load import load
from spmd.text.stage import device_count
from tests.collectives.schedule.window_checker import check_windows


def scheduled(place: Path, *, fusion: bool) -> HloModule:
    module = load(place)
    options = CompileOptions(fusion=fusion)
    for name, compilation in stages(module, device_count(module), options):
        if name == "scheduled":
            AsyncCreation().run(compilation.module)
            return compilation.module
    raise AssertionError("the pipeline schedules")


def row(name: str, report: LatencyReport, seconds: float) -> str:
    """Hidden: of each exchange's seconds that could be, all exposed ones counted against each."""
    hidden = ", ".join(
        f"{exchange} {1 - report.exposed / min(report.work, busy):.1%} of {min(report.work, busy):.3f} s"
        for exchange, busy in report.communication
    )
    return (
        f"| {name} | {report.seconds_before:.3f} | {report.seconds:.3f} | {report.work:.3f} | {hidden} | "
        f"{report.peak_before / 1e9:.1f} | {report.peak / 1e9:.1f} | {seconds:.1f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", type=Path, nargs="+", metavar="MODULE")
    parser.add_argument("--machine", action="append", metavar="NAME")
    parser.add_argument("--memory-limit", type=int, metavar="BYTES")
    parser.add_argument("--fusion", action="store_true")
    options = parser.parse_args(arguments)
    print(
        "| module on machine | before s | after s | work s | hidden | before GB | after GB | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for place in options.modules:
        module = scheduled(place, fusion=options.fusion)
        for machine in options.machine or ["dgx-h100", "dgx-h100{links=0.25}"]:
            copy = clone_module(module)
            estimator = RooflineEstimator.of(copy, machine_named(machine))
            start = time.process_time()
            report = schedule_for_latency(
                copy, estimator, LatencyOptions(memory_limit=options.memory_limit)
            )
            seconds = time.process_time() - start
            fits = options.memory_limit is not None and report.peak_before <= options.memory_limit
            check_windows(copy, options.memory_limit if fits else None)
            print(row(f"{place.stem} on {machine}", report, seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
