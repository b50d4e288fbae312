"""Measure how partitioning grows with the number of devices, and with the number of instructions.

    python -m benchmarks.partitioning.scale [--meshes 2x2x2,8x8x8,32x16x32] [--layers 14,56,140] [--case FOLDER]
                                         [--rounds 2] [--profile] [--json FILE]

The first table has a 12-layer GPT training step on each mesh of (data, fsdp, model), its dimensions enlarged so that
all divide, or with --case that recorded case, scaled likewise. The second table has the step with more and more
unrolled layers. A row shows instructions of the logical and of the per-device module; seconds to prepare, to propagate
and to partition (CPU time of one core); the longest table in the result (devices or pairs listed one by one, an array
constant); and peak memory of the process, which holds both modules. Each row is measured in a process of its own, the
second time that it partitions. Each of --rounds measures all rows of a table, so that what else the machine does meets
all rows alike, and each stage's least time counts. --profile prints where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TypeAlias

from benchmarks.gpt_step import GptSizes, gpt_step
from benchmarks.scaled_case import scaled_case
from partitioner.devices.device_order import device_order
from partitioner.prepare import prepare
from partitioner.reshard.search import clear_plan_cache
from partitioner.spmd_partitioner import SpmdPartitioner
from spmd.hlo import HloInstruction, HloModule
from spmd.hlo.clone import clone_module
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs, ConstantAttrs
from spmd.source_target_pairs import ListedPairs
from spmd.text.parser import parse_module


@dataclass(frozen=True)
class Figures:
    """Figures of one row; seconds are CPU time of one process."""

    devices: int
    layers: int
    logical: int
    partitioned: int
    prepare: float
    propagate: float
    partition: float
    longest_table: int
    peak_mb: float

    def least(self, other: Figures) -> Figures:
        """Return the figures with the lesser time of two rounds for each stage."""
        stages = ("prepare", "propagate", "partition")
        return replace(self, **{s: min(getattr(self, s), getattr(other, s)) for s in stages})

    @property
    def seconds(self) -> float:
        return self.prepare + self.propagate + self.partition

    def __str__(self) -> str:
        return (
            f"{self.devices:8,d} {self.layers:7d} {self.logical:9,d} {self.partitioned:12,d} {self.prepare:9.2f} "
            f"{self.propagate:10.2f} {self.partition:10.2f} {self.seconds:9.2f} "
            f"{1e6 * self.seconds / self.logical:8.0f} {self.longest_table:8,d} {self.peak_mb:8.0f}"
        )


HEADER = " devices  layers   logical  partitioned   prepare  propagate  partition     total   us/ins    table  peak MB"


class TimedPartitioner(SpmdPartitioner):
    """A partitioner that records how long propagation took."""

    propagation = 0.0

    def propagate(self) -> None:
        start = time.process_time()
        super().propagate()
        self.propagation = time.process_time() - start


def partition_once(module: HloModule, devices: int) -> tuple[HloModule, float, float, float]:
    """Partition as partitioner.spmd_partitioner.partitioned does; return the result, and the seconds of each stage."""
    clear_plan_cache()
    start = time.process_time()
    logical = clone_module(module)
    prepare(logical)
    if device_order(logical, devices) is not None:
        raise ValueError("devices are expected in order")
    prepared = time.process_time()
    driver = TimedPartitioner(logical, devices)
    result = driver.run()
    total = time.process_time() - prepared
    return result, prepared - start, driver.propagation, total - driver.propagation


def measure(make: Callable[[], HloModule], layers: int) -> Figures:
    module = make()
    devices = module.num_partitions
    partition_once(
        module, devices
    )  # fills what a process computes once: imports, definitions of ops
    result, prepared, propagated, partitioned = partition_once(module, devices)
    return Figures(
        devices,
        layers,
        count(module),
        count(result),
        prepared,
        propagated,
        partitioned,
        max(map(table_entries, result.all_instructions())),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def count(module: HloModule) -> int:
    return sum(1 for _ in module.all_instructions())


def table_entries(instruction: HloInstruction) -> int:
    """Return how many entries an instruction lists.

    Entries are devices of groups not in iota form, pairs, and elements of a constant.
    """
    attrs = instruction.attrs
    if isinstance(attrs, CollectivePermuteAttrs):
        pairs = attrs.source_target_pairs
        return len(pairs) if isinstance(pairs, ListedPairs) else 0
    if isinstance(attrs, CollectiveAttrs) and attrs.replica_groups.iota is None:
        return sum(map(len, attrs.replica_groups.groups))
    if isinstance(attrs, ConstantAttrs):
        return instruction.array_shape.num_elements
    return 0


def maker(case: Path | None, mesh: tuple[int, int, int], layers: int) -> Callable[[], HloModule]:
    if case is None:
        return lambda: gpt_step(GptSizes.for_mesh(mesh, layers))

    def from_case() -> HloModule:
        module = parse_module(scaled_case(case, mesh))
        module.num_partitions = mesh[0] * mesh[1] * mesh[2]
        return module

    return from_case


def profile(make: Callable[[], HloModule]) -> None:
    module = make()
    profiler = cProfile.Profile()
    profiler.runcall(partition_once, module, module.num_partitions)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


#: (recorded case, mesh, layers) of a row.
Job: TypeAlias = tuple[Path | None, str, int]


def table(jobs: list[Job], options: argparse.Namespace) -> list[Figures]:
    """Measure all jobs, print a row for each, and return the rows."""
    rounds = [[in_own_process(job) for job in jobs] for _ in range(options.rounds)]
    rows = [reduce(Figures.least, found) for found in zip(*rounds, strict=True)]
    for row, (case, mesh, layers) in zip(rows, jobs, strict=True):
        print(row, flush=True)
        if options.profile:
            profile(maker(case, parse_mesh(mesh), layers))
    return rows


def in_own_process(job: Job) -> Figures:
    case, mesh, layers = job
    command = [sys.executable, __file__, "--one", "--meshes", mesh, "--layers", str(layers)]
    command += ["--case", str(case)] if case else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Figures(**json.loads(done.stdout))


def parse_mesh(text: str) -> tuple[int, int, int]:
    data, fsdp, model = map(int, text.split("x"))
    return data, fsdp, model


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--meshes", default="2x2x2,8x8x8,32x16x32")
    parser.add_argument("--layers", default="14,56,140", help="depths of the second table")
    parser.add_argument("--case", type=Path, help="a recorded GPT case for the first table")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="of each row")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    meshes = [mesh for mesh in options.meshes.split(",") if mesh]
    depths = [int(layers) for layers in options.layers.split(",") if layers]
    if options.one:
        mesh, layers = parse_mesh(meshes[0]), depths[0]
        figures = measure(maker(options.case, mesh, layers), layers)
        print(json.dumps(asdict(figures)))
        return 0
    print(HEADER)
    over_devices = table([(options.case, mesh, 12) for mesh in meshes], options)
    first = meshes[0] if meshes else "2x2x2"
    over_layers = table([(None, first, layers) for layers in depths], options)
    report(over_devices, over_layers)
    rows = over_devices + over_layers
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


def report(over_devices: list[Figures], over_layers: list[Figures]) -> None:
    if over_devices:
        seconds = [row.seconds for row in over_devices]
        counts = [row.partitioned for row in over_devices]
        print(
            f"over devices: instructions within {max(counts) / min(counts) - 1:.1%}, "
            f"time within {max(seconds) / min(seconds) - 1:.1%}"
        )
    if over_layers:
        each = [row.seconds / row.logical for row in over_layers]
        print(f"over layers: time per instruction within {max(each) / min(each) - 1:.1%}")


if __name__ == "__main__":
    sys.exit(main())
