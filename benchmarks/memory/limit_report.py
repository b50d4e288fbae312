"""Report what a memory limit costs: bytes of a device, repeated work and traffic, compile time; XLA's beside it.

    python -m benchmarks.memory.limit_report CASE [--rows 6] [--limits 40M,38M]

CASE is a folder with module.hlo and case.json. The rows are schedules without rematerialization, without a limit, under
each of --limits (else under --rows limits spaced evenly between the bytes without a limit and the least that can be
met), with the least memory, and with the least memory that is met without computing anything in pieces. ``bytes`` are
all allocations of a device; what is added is counted against the optimized program, before anything is recomputed;
seconds are CPU time of scheduling alone. XLA's row is what case.json recorded of XLA CPU on the same module.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import spmd
from launch.cli.arguments import byte_count
from launch.pipeline import stages
from runtime.compile import schedule_module
from runtime.schedule.exact_memory import device_bytes
from runtime.schedule.memory_fit import REPEATING, fit_memory
from runtime.schedule.memory_scheduler import schedule_for_memory
from runtime.schedule.rematerialize import Budget
from spmd.analysis.cost import ModuleCost, module_cost
from spmd.hlo import HloModule
from spmd.hlo.clone import clone_module

TITLE = f"{'limit':>24} {'bytes':>12} {'flops':>15} {'added':>8} {'memory traffic':>15} {'wire':>8} {'seconds':>8}"

#: The budget under which nothing is recomputed.
NOTHING = Budget(flops=0, bytes=0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", type=Path)
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--limits", default="", help="such as 40M,38M, largest first")
    options = parser.parse_args()
    description = json.loads((options.case / "case.json").read_text())
    devices = description["num_partitions"] * description.get("num_replicas", 1)
    module = optimized(options.case / "module.hlo", devices)
    base = module_cost(module)
    print(TITLE)
    peer = description["peer"]
    memory = peer["memory"]
    total = (
        memory["argument_size_in_bytes"]
        + memory["output_size_in_bytes"]
        + memory["temp_size_in_bytes"]
        - memory["alias_size_in_bytes"]
    )
    print(f"{'XLA CPU':>24} {total:>12,} {peer['flops_per_device']:>15,.0f}")
    print(scheduled(module, None, NOTHING).line("none, nothing again", base), flush=True)
    free = scheduled(module, None)
    print(free.line("none", base), flush=True)
    least = scheduled(module, 1)
    limits = [byte_count(one) for one in options.limits.split(",") if one]
    if not limits:
        step = (free.bytes - least.bytes) / (options.rows + 1)
        limits = [int(free.bytes - n * step) for n in range(1, options.rows + 1)]
    for limit in limits:
        print(scheduled(module, limit).line(f"{limit:,}", base), flush=True)
    print(least.line("as low as it goes", base), flush=True)
    print(unsplit(module).line("the same, no pieces", base), flush=True)
    return 0


@dataclass(frozen=True)
class Figures:
    bytes: int
    cost: ModuleCost
    seconds: float

    def line(self, limit: str, base: ModuleCost) -> str:
        def added(part: Callable[[ModuleCost], float]) -> str:
            return f"{100 * (part(self.cost) / max(part(base), 1.0) - 1):+.1f}%"

        return (
            f"{limit:>24} {self.bytes:>12,} {self.cost.flops:>15,.0f} {added(lambda c: c.flops):>8} "
            f"{added(lambda c: c.bytes_accessed):>15} {added(lambda c: c.wire_bytes):>8} {self.seconds:>8.1f}"
        )


def scheduled(module: HloModule, limit: int | None, budget: Budget | None = None) -> Figures:
    copy = clone_module(module)
    start = time.process_time()
    schedule_for_memory(copy, budget)
    schedule_module(copy, limit)
    seconds = time.process_time() - start
    return Figures(device_bytes(copy), module_cost(copy), seconds)


def unsplit(module: HloModule) -> Figures:
    """Return the figures of the lowest memory that recomputation alone reaches, with nothing computed in pieces."""
    copy = clone_module(module)
    start = time.process_time()
    schedule_for_memory(copy)
    fit_memory(copy, 1, (REPEATING,))
    seconds = time.process_time() - start
    return Figures(device_bytes(copy), module_cost(copy), seconds)


def optimized(path: Path, devices: int) -> HloModule:
    return next(
        compilation.module
        for stage, compilation in stages(spmd.load(path), devices, spmd.CompileOptions())
        if stage == "optimized"
    )


if __name__ == "__main__":
    raise SystemExit(main())
