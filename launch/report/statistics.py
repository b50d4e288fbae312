"""Figures of a compilation: instructions, work, communication, memory and time, for one device."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from launch.options import CompileOptions
from launch.pipeline import stages
from launch.report.costly_reshards import CostlyReshard, costly_reshards
from runtime.compile import build_executable
from runtime.executable import Executable
from spmd.analysis.cost import ModuleCost, module_cost
from spmd.hlo import HloModule
from spmd.lazy_dataclass import dataclass

COUNTED_STAGES = ("logical", "partitioned", "optimized")


@dataclass(frozen=True)
class Statistics:
    """Sizes in bytes, times in seconds, all per device; loops counted as often as they run where that is known."""

    module: str
    devices: int
    instructions: Mapping[str, int]
    cost: ModuleCost
    #: Flops that the scheduler added by rematerialization, which the total contains.
    flops_recomputed: float
    memory: Mapping[str, int]
    kernels: int
    compile_seconds: Mapping[str, float]
    #: Values that the program replicates, or moves at a much higher cost than the least possible.
    implicit_full_replications: tuple[CostlyReshard, ...] = ()

    def as_json(self) -> dict[str, Any]:
        seconds = dict(self.compile_seconds)
        return {
            "module": self.module,
            "devices": self.devices,
            "instructions": dict(self.instructions),
            "kernels": self.kernels,
            "flops": self.cost.flops,
            "flops_recomputed": self.flops_recomputed,
            "transcendentals": self.cost.transcendentals,
            "bytes_accessed": self.cost.bytes_accessed,
            "collectives": {
                kind: {
                    "count": cost.count,
                    "executed": cost.executed,
                    "bytes": cost.bytes,
                    "wire_bytes": cost.wire_bytes,
                }
                for kind, cost in self.cost.collectives.items()
            },
            "wire_bytes": self.cost.wire_bytes,
            "unknown_loops": list(self.cost.unknown_loops),
            "memory": dict(self.memory),
            "implicit_full_replications": [
                one.as_json() for one in self.implicit_full_replications
            ],
            "compile_s": {"total": sum(seconds.values()), **seconds},
        }


def count_executable(
    module: HloModule, devices: int | None, options: CompileOptions
) -> tuple[Statistics, Executable]:
    """Compile ``module``. Returns its figures and the executable."""
    instructions: dict[str, int] = {}
    needed = 0.0
    replications: tuple[CostlyReshard, ...] = ()
    for stage, compilation in stages(module, devices, options):
        if stage in COUNTED_STAGES:
            instructions[stage] = compilation.module.instruction_count
        if stage == "optimized":
            needed = module_cost(compilation.module).flops
        if stage == "partitioned" and compilation.partitioner is not None:
            replications = costly_reshards(compilation.partitioner)
    start = time.perf_counter()
    executable = build_executable(
        compilation.module, check=options.check, memory_limit=options.memory_limit
    )
    compilation.seconds["thunks"] = time.perf_counter() - start
    cost = module_cost(compilation.module)
    statistics = Statistics(
        module=module.name,
        devices=compilation.devices,
        instructions=instructions,
        cost=cost,
        flops_recomputed=max(cost.flops - needed, 0.0),
        memory=executable.stats.figures(),
        kernels=executable.kernel_count,
        compile_seconds=compilation.seconds,
        implicit_full_replications=replications,
    )
    return statistics, executable


def format_statistics(statistics: Statistics) -> str:
    """Return the figures as text."""
    cost = statistics.cost
    lines = [
        f"{statistics.module} on {statistics.devices} devices (per device)",
        "  instructions    "
        + ", ".join(f"{name} {n}" for name, n in statistics.instructions.items()),
        f"  flops           {cost.flops:,.0f}, of which {statistics.flops_recomputed:,.0f} are recomputed",
        f"  bytes accessed  {cost.bytes_accessed:,.0f}",
        f"  wire bytes      {cost.wire_bytes:,.0f}",
    ]
    for kind, one in cost.collectives.items():
        lines.append(
            f"    {kind:<22} {one.count:>4} instructions, {one.executed:>6.0f} executed, {one.bytes:>14,.0f} bytes"
        )
    lines += [f"  {name + ' bytes':<15} {size:,}" for name, size in statistics.memory.items()]
    lines += [
        f"  {one.op} for {one.used_by}: {one.shape} from {one.source} to {one.target} receives "
        f"{one.bytes:,.0f} bytes, the least possible is {one.bound:,.0f}"
        for one in statistics.implicit_full_replications
    ]
    total = sum(statistics.compile_seconds.values())
    parts = ", ".join(
        f"{stage} {seconds:.2f}" for stage, seconds in statistics.compile_seconds.items()
    )
    lines.append(f"  compile         {total:.2f} s ({parts})")
    return "\n".join(lines)
